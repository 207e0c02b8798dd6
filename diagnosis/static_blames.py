"""Which missing group rule is to blame for which pairs: one cause for each rule, or one for too many."""

from __future__ import annotations

from typing import Dict, FrozenSet, Optional, Sequence, Tuple

from cluster.flows import Obstacle, Reason
from diagnosis.static_fixes import best_group
from diagnosis.static_members import Blame, ClassPair, Members

GROUP_REASONS = (Reason.NO_EGRESS_RULE, Reason.NO_INGRESS_RULE)
ROUTE_REASONS = (Reason.NO_ROUTE, Reason.NO_RETURN_ROUTE)

RULES_LISTED = 50
"""Missing rules of one cause and direction that are findings of their own; more are one finding."""

Kind = Tuple[str, str]  # the cause's id, and "in" or "out"


def cause_of(obstacle: Obstacle, members: Members) -> str:
    """The id of the cause that an obstacle is, as far as it alone tells."""
    if obstacle.reason in ROUTE_REASONS:
        return "route-missing"
    if obstacle.reason not in GROUP_REASONS:
        return "nacl-deny"
    if obstacle.ports == members.all_but_master_port:
        return "sg-only-master-port"
    if obstacle.ports != members.reach.need:
        return "sg-ports-too-narrow"
    return "sg-no-self-ingress" if obstacle.reason is Reason.NO_INGRESS_RULE else "sg-no-self-egress"


class GroupBlames:
    """By cause, direction, group that needs a rule and group which that rule should name.

    A thousand groups that do not name each other lack a million rules: past RULES_LISTED, all of one
    cause and direction are one blame, whose key names no groups.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.blames: Dict[Tuple[str, ...], Blame] = {}
        self._listed: Dict[Kind, int] = {}
        self._best: Dict[Optional[FrozenSet[str]], str] = {}

    def add(self, pairs: Sequence[ClassPair], obstacle: Obstacle) -> None:
        """Class pairs that a missing group rule stops."""
        egress = obstacle.reason is Reason.NO_EGRESS_RULE
        kind = (cause_of(obstacle, self._members), "out" if egress else "in")
        for number, pair in enumerate(pairs):
            if kind in self.blames:
                self.blames[kind].add(pairs[number:], obstacle)
                return
            key = (*kind, *self._to_change(*(pair if egress else pair[::-1])))
            if key not in self.blames:
                self._listed[kind] = self._listed.get(kind, 0) + 1
            self.blames.setdefault(key, Blame(kind[0])).add([pair], obstacle)
            if self._listed[kind] > RULES_LISTED:
                self._join(kind)

    def _join(self, kind: Kind) -> None:
        joined = Blame(kind[0])
        for key in [key for key in self.blames if key[:2] == kind]:
            for obstacle, pairs in self.blames.pop(key).stopped.items():
                joined.add(pairs, obstacle)
        self.blames[kind] = joined

    def _to_change(self, own: int, far: int) -> Tuple[str, str]:
        """The group that needs a rule, and the group which that rule should name."""
        mine, theirs = (self._members.place(number).groups for number in (own, far))
        shared = (mine or frozenset()) & (theirs or frozenset())
        if shared:
            return self._best_of(shared), self._best_of(shared)
        return self._best_of(mine), self._best_of(theirs)

    def _best_of(self, groups: Optional[FrozenSet[str]]) -> str:
        found = self._best.get(groups)
        if found is None:
            found = self._best[groups] = best_group(self._members.lookup, groups or ())
        return found
