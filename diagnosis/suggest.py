"""The tightest rules that keep a mesh: what to authorise, and what could be revoked then.

Pure. A suggestion is found with the reachability engine alone, and proven with it: the world after it is
judged as any other. Rules are taken away only one after the other, each time looking whether the members
still reach each other, so that none of those that are left could go.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from cluster.document_groups import rule_key
from cluster.flows import Gap, Place, reachability
from cluster.lookup import Lookup
from cluster.ports import PortRange, PortSet
from cluster.rules import Peer, SecurityGroupRule, SourceKind
from cluster.snapshot import ClusterSnapshot, Table
from diagnosis.static import StaticFindings, judge_rules
from diagnosis.suggest_rules import Groups, Profile, rules_of
from diagnosis.suggest_words import Words

Rules = List[SecurityGroupRule]

ONE_SUBNET = "subnet-of-all"
"""Where the members stand while groups alone are judged: ACLs and routes have no part in it."""


@dataclass(frozen=True)
class Spare:
    """A rule that could go. also: whom or what else it serves, blank = nobody that was read."""

    rule: SecurityGroupRule
    also: str = ""


@dataclass(frozen=True)
class Suggestion:
    """What a profile comes to for these members.

    authorize: rules that have to come first. revoke: rules that let members pass and that are not needed
    then. not_needed: rules that serve something else than the mesh; they may go as far as the mesh goes.
    kept: rules that stand and that the mesh needs. instead: with these, what reaches beyond the members
    in `kept` is not needed either. problem: why nothing can be suggested; then all of them are empty.
    after: the judgement of the world after `authorize` and `revoke`.
    """

    profile: Profile
    authorize: Tuple[SecurityGroupRule, ...] = ()
    revoke: Tuple[Spare, ...] = ()
    not_needed: Tuple[Spare, ...] = ()
    kept: Tuple[SecurityGroupRule, ...] = ()
    instead: Tuple[SecurityGroupRule, ...] = ()
    notes: Tuple[str, ...] = ()
    problem: str = ""
    after: Optional[StaticFindings] = None


def suggest(
    snapshot: ClusterSnapshot,
    members: Sequence[str],
    master_port: int,
    ephemeral: PortRange,
    *,
    profiles: Sequence[Profile] = tuple(Profile),
    unread_members: Sequence[str] = (),
    fellows: Sequence[str] = (),
) -> Tuple[Suggestion, ...]:
    """The tightest rules for each profile; see `judge_rules` for the arguments."""
    now = judge_rules(
        snapshot, members, master_port, ephemeral, unread_members=unread_members, fellows=fellows
    )
    problem = _unknown(snapshot, now)
    if problem:
        return tuple(Suggestion(profile=item, problem=problem) for item in profiles)

    def judged(world: ClusterSnapshot) -> StaticFindings:
        return judge_rules(
            world, members, master_port, ephemeral, unread_members=unread_members, fellows=fellows
        )

    found = []
    for profile in profiles:
        made = _Search(snapshot, now, PortSet((ephemeral,)), profile).found()
        if not made.problem:
            gone = [item.rule for item in made.revoke]
            made = dataclasses.replace(made, after=judged(with_rules(snapshot, made.authorize, gone)))
        found.append(made)
    return tuple(found)


def with_rules(
    snapshot: ClusterSnapshot, more: Iterable[SecurityGroupRule], gone: Iterable[SecurityGroupRule]
) -> ClusterSnapshot:
    """The snapshot with some rules more and some less."""
    away = {rule_key(rule) for rule in gone}
    added: Dict[str, Rules] = {}
    for rule in more:
        added.setdefault(rule.group_id, []).append(rule)
    items = dict(snapshot.security_groups.items)
    for group_id in {*added, *(str(key[0]) for key in away)}:
        group = items[group_id]
        kept = [rule for rule in group.rules or () if rule_key(rule) not in away]
        items[group_id] = dataclasses.replace(group, rules=(*kept, *added.get(group_id, ())))
    groups = dataclasses.replace(snapshot.security_groups, items=items)
    return dataclasses.replace(snapshot, security_groups=groups)


def _unknown(snapshot: ClusterSnapshot, now: StaticFindings) -> str:
    """What has to be known before anything can be suggested, and is not; blank = nothing."""
    reach = now.reachability
    if len(reach.members) < 2:
        return f"{len(reach.members)} running members were found: a mesh has at least 2"
    for place in reach.places:
        if isinstance(place, Gap):
            return str(place)
        if place.groups is None:
            return f"the groups of the interface with {place.address} are not listed"
        unread = Lookup(snapshot).group_rules(place.groups).gaps
        if unread:
            return str(unread[0])
    return ""


class _Search:
    """Finds one profile's suggestion."""

    def __init__(
        self, snapshot: ClusterSnapshot, now: StaticFindings, source_ports: PortSet, profile: Profile
    ) -> None:
        self._now = now
        self._profile = profile
        self._source_ports = source_ports
        self._lookup = Lookup(snapshot)
        self._groups = Groups(self._lookup, now.reachability.members)
        self._words = Words(now, self._groups, profile, source_ports)
        every = (rule for group in self._groups.every for rule in self._read(group))
        self._stand = list({rule_key(rule): rule for rule in every}.values())
        self._some = [m for members in now.reachability.classes for m in members[:2]]
        self._bare = self._without_subnets(snapshot)
        self._wanted: Rules = []

    def _read(self, group_id: str) -> Tuple[SecurityGroupRule, ...]:
        group = self._lookup.snapshot.security_groups.get(group_id)
        return (group.rules if group else None) or ()

    def _without_subnets(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Two members of each class in one subnet: there security groups decide alone."""
        items = {}
        for member in self._some:
            primary = self._lookup.primary(member)
            if primary is not None:
                items[primary.id] = dataclasses.replace(primary, subnet_id=ONE_SUBNET)
        return dataclasses.replace(snapshot, interfaces=Table(items=items))

    def _holds(self, rules: Iterable[SecurityGroupRule]) -> bool:
        """Whether groups with these rules, and no others, let every pair pass (and EFA work)."""
        rules = list(rules)
        if self._profile is Profile.EFA:
            there = {rule_key(rule) for rule in rules}
            if not all(rule_key(rule) in there for rule in self._wanted):
                return False
        world = with_rules(self._bare, rules, self._stand)
        reach = reachability(world, self._some, self._now.reachability.need, self._source_ports)
        return reach.holds is True

    def found(self) -> Suggestion:
        """The suggestion, without the judgement of what comes after it."""
        chosen = self._groups.chosen(self._profile, self._stand)
        if not chosen:
            return Suggestion(profile=self._profile, problem=self._no_group())
        need = self._now.reachability.need
        self._wanted = rules_of(self._profile, self._groups, chosen, need)
        there = {rule_key(rule): rule for rule in self._stand}
        have = [there[rule_key(rule)] for rule in self._wanted if rule_key(rule) in there]
        new = [rule for rule in self._wanted if rule_key(rule) not in there]
        have_keys = {rule_key(rule) for rule in have}
        rest = [rule for rule in self._stand if rule_key(rule) not in have_keys]
        wide = [rule for rule in rest if self._is_between_members(rule)]
        others = [rule for rule in rest if rule not in wide]
        if not self._holds([*have, *new, *others]):
            return Suggestion(profile=self._profile, problem="no rule between their groups joins the members")
        new, instead = self._without(new, [*have, *others], outbound_first)
        others, not_needed = self._without(others, [*have, *new], widest_first)
        have, redundant = self._without(have, [*new, *others], widest_first)
        beyond = [rule for rule in others if self._carries(rule) and not self._words.for_efa(rule)]
        return Suggestion(
            profile=self._profile,
            authorize=tuple(new),
            revoke=tuple(Spare(rule, self._words.also(rule)) for rule in (*wide, *redundant)),
            not_needed=tuple(Spare(rule, self._words.served(rule)) for rule in not_needed),
            kept=(*have, *others),
            instead=tuple(instead) if beyond else (),
            notes=tuple(self._words.notes(chosen)),
        )

    def _without(self, some: Rules, beside: Rules, order: Order) -> Tuple[Rules, Rules]:
        """Those of some rules that are needed beside others, and those that are not."""
        left, spare = list(some), []
        for rule in sorted(some, key=order):
            fewer = [item for item in left if item is not rule]
            if self._holds([*beside, *fewer]):
                left = fewer
                spare.append(rule)
        return left, spare

    def _carries(self, rule: SecurityGroupRule) -> bool:
        """Whether the rule lets any member and another one pass on a needed port."""
        reach = self._now.reachability
        if not rule.ports("tcp").intersection(reach.need):
            return False
        places = [item for item in reach.places if isinstance(item, Place)]
        own = [item for item in places if rule.group_id in (item.groups or ())]
        far = [item for item in places if rule.matches(Peer(item.address, item.groups))]
        alone = len(own) == len(far) == 1 and own == far
        return bool(own and far) and not (alone and self._single(own[0]))

    def _single(self, place: Place) -> bool:
        reach = self._now.reachability
        return len(reach.classes[reach.places.index(place)]) == 1

    def _is_between_members(self, rule: SecurityGroupRule) -> bool:
        """Whether the profile's own rules take its place, so that it is told apart from other purposes.

        Outbound only where it leads to members alone: what leads anywhere serves AWS's services, too.
        """
        if self._words.for_efa(rule) or not self._carries(rule):
            return False
        if not rule.egress:
            return True
        return rule.kind is SourceKind.GROUP and not self._groups.strangers(rule.source)

    def _no_group(self) -> str:
        if self._profile is Profile.EFA:
            return "EFA needs one group on every member's interfaces, and there is none"
        return "a member's interface carries no group"


Order = Callable[[SecurityGroupRule], Tuple[int, int, str]]


def outbound_first(rule: SecurityGroupRule) -> Tuple[int, int, str]:
    """Tries first whether an outbound rule can be left out: there the one for everything mostly is enough."""
    return (not rule.egress, rule.first or 0, rule.source)


def widest_first(rule: SecurityGroupRule) -> Tuple[int, int, str]:
    """Tries first whether the rule for the most addresses and ports can go."""
    bits = rule.network.prefixlen if rule.network is not None else 128
    return (bits, -sum(map(len, rule.ports("tcp"))), rule.source)
