"""One packet's way from a member to another, stage by stage.

Each stage answers for all needed ports at once: blocked, unknown, and what decides.
Answers are remembered by what they depend on (the groups, the subnet, and which
networks of the rules hold the far address), so equal members are judged once.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Optional, Tuple

from cluster.group_masks import GroupMasks
from cluster.lookup import Gap, GroupRules, Lookup, disputed_gap
from cluster.ports import PortSet
from cluster.routing import Routing
from cluster.rules import Peer, SecurityGroupRule, SourceKind
from cluster.stages import PASSES, Explanation, Obstacle, Place, Reason, Stage, stops


class PathRules:
    """The stages of every way between places of one snapshot, remembered.

    need: destination ports to judge. source_ports: ports a connection may come from.
    groups: every group that a place to be judged may carry.
    """

    def __init__(
        self,
        lookup: Lookup,
        need: PortSet,
        source_ports: PortSet,
        groups: FrozenSet[str],
        protocol: str = "tcp",
    ) -> None:
        self._lookup = lookup
        self.group_masks = GroupMasks(lookup, groups, need, protocol)
        self._need = need
        self._source_ports = source_ports
        self._protocol = protocol
        self._routing = Routing(lookup, need)
        self._memo: Dict[Tuple[Any, ...], Stage] = {}
        self._rules: Dict[Optional[FrozenSet[str]], GroupRules] = {}

    def stages(self, source: Place, target: Place) -> Tuple[Stage, ...]:
        """All stages in the packet's order; the same objects for ways that are alike."""
        out, into = self.group_stages(source, target)
        there, back = self.net_stages(source, target)
        return (out, *there, into, *back)

    def net_stages(self, source: Place, target: Place) -> Tuple[Tuple[Stage, ...], Tuple[Stage, ...]]:
        """ACLs and routes there, and those of the replies; none inside a subnet."""
        if source.subnet_id and source.subnet_id == target.subnet_id:
            return (), ()
        there = (
            self.acl_stage(source, target, Reason.ACL_EGRESS),
            self._route(source, target, Reason.NO_ROUTE),
            self.acl_stage(target, source, Reason.ACL_INGRESS),
        )
        back = (
            self.acl_stage(target, source, Reason.ACL_REPLY_EGRESS),
            self._route(target, source, Reason.NO_RETURN_ROUTE),
            self.acl_stage(source, target, Reason.ACL_REPLY_INGRESS),
        )
        return there, back

    def group_stages(self, source: Place, target: Place) -> Tuple[Stage, Stage]:
        """What the security groups alone say: the sender's on the way out, the receiver's in."""
        return self._groups(source, target, egress=True), self._groups(target, source, egress=False)

    def _once(self, key: Tuple[Any, ...], work: Callable[[], Stage]) -> Stage:
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = work()
        return found

    def _once_rules(self, groups: Optional[FrozenSet[str]]) -> GroupRules:
        found = self._rules.get(groups)
        if found is None:
            found = self._rules[groups] = self._lookup.group_rules(groups)
        return found

    def _groups(self, own: Place, far: Place, egress: bool) -> Stage:
        sure, maybe = self.group_masks.allowed(own.groups, egress, far)
        missing = self.group_masks.masks.everything & ~sure
        if not missing:
            return PASSES
        gaps = self._once_rules(own.groups).gaps
        open_still = missing if gaps else missing & maybe
        # what is untold depends on the peer; what is blocked, on nothing but these ports
        key = ("groups", own.groups, egress, sure, open_still, far.seen_as if open_still else None)
        return self._once(key, lambda: self._judge_groups(own, far, egress, (sure, open_still)))

    def _judge_groups(self, own: Place, far: Place, egress: bool, known: Tuple[int, int]) -> Stage:
        masks = self.group_masks.masks
        sure, open_still = known
        groups = self._once_rules(own.groups)
        rules = groups.direction(egress)
        unknown = masks.ports(open_still)
        gaps = list(groups.gaps)
        if open_still:
            peer = Peer(address=far.address, groups=far.groups)
            gaps += [
                _match_gap(rule)
                for rule in rules
                if rule.matches(peer) is None and rule.ports(self._protocol).intersection(unknown)
            ]
        blocked = masks.ports(masks.everything & ~sure & ~open_still)
        names = tuple(sorted(own.groups or ()))
        said: Dict[Optional[FrozenSet[str]], str] = {}

        def explain(source: Place, target: Place) -> str:
            carried = (target if egress else source).groups
            if carried not in said:
                passing = masks.ports(sure)
                said[carried] = (
                    f"no rule of {' or '.join(names) or 'any group'} lets {self._protocol} {blocked} "
                    f"{'out to' if egress else 'in from'} {_carrying(carried)}"
                    + (f" (only {passing} of what is needed)" if passing else "")
                )
            return said[carried]

        reason = Reason.NO_EGRESS_RULE if egress else Reason.NO_INGRESS_RULE
        code = Explanation.ENI_SG_RULES_MISMATCH if rules else Explanation.SG_HAS_NO_RULES
        return stops(Obstacle(reason, names, blocked, code, explain), unknown, gaps)

    def stays_inside(self, own: Place, far: Place) -> bool:
        """Whether the routes of a subnet leave a packet to this address in one's own VPC alone."""
        return self._routing.stays_inside(own, far)

    def acl_stage(self, own: Place, far: Place, reason: Reason) -> Stage:
        """What the ACL of one's own subnet says of a packet to or from the far end."""
        key = (reason, own.subnet_id, own.vpc_id, far.signature)
        return self._once(key, lambda: self._judge_acl(own.subnet_id, own.vpc_id, far, reason))

    def _judge_acl(self, subnet_id: str, vpc_id: str, far: Place, reason: Reason) -> Stage:
        acl = self._lookup.acl(subnet_id, vpc_id)
        if acl is None:
            return Stage(unknown=self._need, gaps=(self._lookup.acl_gap(subnet_id),))
        egress = reason in (Reason.ACL_EGRESS, Reason.ACL_REPLY_EGRESS)
        reply = reason in (Reason.ACL_REPLY_EGRESS, Reason.ACL_REPLY_INGRESS)
        wanted = self._source_ports if reply else self._need
        rules = self._lookup.acl_rules(acl, egress, self._protocol, wanted)
        mask, entries = rules.denied(far.address)
        if not mask:
            return PASSES
        denied = rules.masks.ports(mask)
        # A reply goes to the port the connection came from, whatever port it was for.
        blocked = self._need if reply else denied

        def explain(_: Place, __: Place) -> str:
            said = "; ".join(str(entry) for entry in entries) or "no entry allows it"
            what = "replies to ports" if reply else self._protocol
            return f"{acl.id} of {subnet_id} drops {what} {denied} {'out' if egress else 'in'}: {said}"

        code = Explanation.SUBNET_ACL_RESTRICTION
        return stops(Obstacle(reason, (acl.id,), blocked, code, explain, entries))

    def _route(self, own: Place, far: Place, reason: Reason) -> Stage:
        key = (reason, own.subnet_id, own.vpc_id, own.signature, far.subnet_id, far.vpc_id, far.signature)
        return self._once(key, lambda: self._routing.stage(own, far, reason))


def _match_gap(rule: SecurityGroupRule) -> Gap:
    """Why it cannot be told whether a rule matches the far end."""
    if rule.disputed:
        return disputed_gap(rule)
    if rule.kind is SourceKind.PREFIX_LIST:
        detail = f"the entries of {rule.source} were not read"
        return Gap("prefix-lists", detail, resource=rule.source, egress=rule.egress)
    return Gap("network-interfaces", f"whether the peer carries {rule.source} is unknown")


def _carrying(groups: Optional[FrozenSet[str]]) -> str:
    if groups is None:
        return "a peer whose groups are unknown"
    return f"members that carry {', '.join(sorted(groups))}" if groups else "members that carry no group"
