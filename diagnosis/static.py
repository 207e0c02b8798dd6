"""What the rules alone say: can the mesh form, which cause stops it, who else gets in.

Pure: a snapshot of EC2 in, findings out. It names a cause only where the rules decide;
where something that the answer needs was not read, the answer is None, with the
candidates and the command that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from cluster.exposure import Exposed, Exposure, exposure
from cluster.flows import Gap, Reachability, reachability
from cluster.lookup import Lookup, parse_address
from cluster.ports import PortRange, PortSet
from cluster.snapshot import ClusterSnapshot
from diagnosis.causes import finding
from diagnosis.report import Finding, Verdict
from diagnosis.static_causes import name_causes
from diagnosis.static_hints import advisories
from diagnosis.static_members import Members

CANDIDATE_OF: Mapping[str, str] = {
    "network-acls": "nacl-deny",
    "security-groups": "sg-no-self-ingress",
    "prefix-lists": "sg-no-self-ingress",
    "network-interfaces": "sg-missing-on-node",
}
"""What an unread document could hide; everything else is about routes."""

READS_ONE: Mapping[str, str] = {
    "pl": "get-managed-prefix-list-entries --prefix-list-id {0} --output json > prefix-list-entries.{0}.json",
    "pcx": "describe-vpc-peering-connections --vpc-peering-connection-ids {0} --output json",
    "tgw": "describe-transit-gateway-attachments --filters Name=transit-gateway-id,Values={0} --output json",
    "vgw": "describe-vpn-connections --filters Name=vpn-gateway-id,Values={0} --output json",
    "eni": "describe-network-interfaces --network-interface-ids {0} --output json",
    "vpce": "describe-vpc-endpoints --vpc-endpoint-ids {0} --output json",
}
"""By the kind of a resource: the command that tells what it is and where it leads."""


@dataclass(frozen=True)
class StaticFindings:
    """The answer from rules alone.

    mesh_possible: None = could not be told; then causes is empty, and candidates,
    unanswered and next_command say what is open.
    advisories: true, but they decide nothing about the mesh (EFA rules, second interfaces).
    exposure_known: False = somebody not in `exposed` may get in too, for what `unanswered` says.
    ranks: member -> rank by sorted private address, as in the subjects.
    """

    mesh_possible: Optional[bool]
    causes: Tuple[Finding, ...]
    candidates: Tuple[Finding, ...]
    advisories: Tuple[Finding, ...]
    unanswered: Tuple[str, ...]
    next_command: Optional[str]
    exposed: Tuple[Exposed, ...]
    exposure_known: bool
    reachability: Reachability
    ranks: Mapping[str, int]

    @property
    def verdict(self) -> Verdict:
        """FAIL when the mesh cannot form or others get in; PASS only when all was looked at."""
        if self.mesh_possible is False or self.exposed:
            return Verdict.FAIL
        return Verdict.PASS if self.mesh_possible and self.exposure_known else Verdict.UNKNOWN

    def blocked(self) -> Iterator[Dict[str, str]]:
        """JSON of every ordered pair's contiguous runs of blocked needed ports: O(N x N)."""
        for run in self.reachability.blocked_runs():
            yield {
                "source": run.source,
                "destination": run.destination,
                "ports": str(run.ports),
                "reason": run.reason,
            }

    def exposed_documents(self) -> List[Dict[str, Any]]:
        """JSON of who outside the members can reach them."""
        return [
            {
                "protocol": item.protocol,
                "ports": item.ports,
                "source": item.source,
                "instances": list(item.instances),
            }
            for item in self.exposed
        ]

    def exposed_lines(self) -> Tuple[str, ...]:
        """The same in words, a line each, for `Diagnosis.exposed`."""
        return tuple(exposed_line(item) for item in self.exposed)


def exposed_line(item: Exposed) -> str:
    """Who gets in, where to, by which rule."""
    traffic = "all protocols" if item.protocol == "-1" else f"{item.protocol} {item.ports}"
    shown = ", ".join(item.via[:3]) + (f" and {len(item.via) - 3} more" if len(item.via) > 3 else "")
    rules = ", ".join(dict.fromkeys(f"{rule.group_id} {rule.rule_id}".strip() for rule in item.rules))
    return f"{item.source} reaches {traffic} on {len(item.instances)} members (through {shown}; {rules})"


def judge_rules(
    snapshot: ClusterSnapshot,
    member_instance_ids: Sequence[str],
    master_port: int,
    ephemeral: PortRange,
    *,
    unread_members: Sequence[str] = (),
    fellows: Sequence[str] = (),
) -> StaticFindings:
    """Judge whether these members can form a Gloo mesh, by the rules of the snapshot.

    Needed for every ordered pair: master_port and the ephemeral range, from any source port
    of the ephemeral range.
    unread_members: why there may be more members than these; with any, the mesh is never
    called possible.
    fellows: instances of the same cluster that are not to be judged; they are no strangers either.
    """
    lookup = Lookup(snapshot)
    ephemeral_ports = PortSet((ephemeral,))
    need = PortSet.of([PortRange(master_port, master_port), ephemeral])
    reach = reachability(lookup, member_instance_ids, need, ephemeral_ports)
    ranks = ranks_by_address(lookup, reach.members)
    holds = reach.holds
    unanswered = [*unread_members, *map(str, reach.gaps)]
    if len(reach.members) < 2 and not unread_members:
        found = f"{len(reach.members)} running member" + ("" if len(reach.members) == 1 else "s")
        unanswered.append(f"{found} found: a mesh has at least 2")
    if holds and unread_members:
        holds = None
    outside = exposure(lookup, [*reach.members, *fellows]) if reach.members else Exposure((), ())
    members = Members(
        lookup=lookup, reach=reach, ranks=ranks, master_port=master_port, source=ephemeral_ports
    )
    undecided = holds is None
    return StaticFindings(
        mesh_possible=holds,
        causes=name_causes(members) if holds is False else (),
        candidates=_candidates(reach.gaps) if undecided else (),
        advisories=advisories(members),
        unanswered=tuple(dict.fromkeys((*unanswered, *map(str, outside.gaps)))),
        next_command=_next_command(lookup, reach, outside.gaps) if undecided or outside.gaps else None,
        exposed=outside.entries,
        exposure_known=bool(reach.members) and not outside.gaps and not unread_members,
        reachability=reach,
        ranks=ranks,
    )


def judge_tagged(
    snapshot: ClusterSnapshot, key: str, value: str, master_port: int, ephemeral: PortRange
) -> StaticFindings:
    """Judge the running instances that carry a tag; see `judge_rules`."""
    problem = snapshot.instances.problem
    unread = (f"who is a member cannot be told: {problem}",) if problem else ()
    members = snapshot.running_with_tag(key, value)
    return judge_rules(snapshot, members, master_port, ephemeral, unread_members=unread)


def ranks_by_address(lookup: Lookup, members: Sequence[str]) -> Dict[str, int]:
    """Rank of every member: sorted by private address, those without one last."""

    def order(member: str) -> Tuple[int, int, str]:
        interface = lookup.primary(member)
        if interface is None or not interface.address:
            return (9, 0, member)
        address = parse_address(interface.address)
        return (address.version, int(address), member)

    return {member: rank for rank, member in enumerate(sorted(members, key=order))}


def _candidates(gaps: Sequence[Gap]) -> Tuple[Finding, ...]:
    """What each unread document could hide, once a cause."""
    by_cause: Dict[str, List[str]] = {}
    for gap in gaps:
        by_cause.setdefault(_hidden_cause(gap), []).append(str(gap))
    return tuple(
        finding(
            cause_id,
            "cluster",
            summary=f"cannot be ruled out: {evidence[0]}",
            evidence=evidence,
            commands=(),
        )
        for cause_id, evidence in by_cause.items()
    )


def _hidden_cause(gap: Gap) -> str:
    """The cause that an unread thing may hide."""
    if gap.document == "prefix-lists" and gap.egress:
        return "sg-no-self-egress"
    return CANDIDATE_OF.get(gap.document, "route-missing")


def _next_command(lookup: Lookup, reach: Reachability, more: Sequence[Gap]) -> str:
    """The command that reads the first thing missing."""
    vpcs = {item.vpc_id for item in reach.places if not isinstance(item, Gap) and item.vpc_id}
    in_vpc = f" --filters Name=vpc-id,Values={','.join(sorted(vpcs))}" if vpcs else ""
    if not lookup.snapshot.instances.complete:
        return "aws ec2 describe-instances --output json > instances.json"
    for gap in (*reach.gaps, *more):
        reading = READS_ONE.get(gap.resource.partition("-")[0])
        if reading:
            return "aws ec2 " + reading.format(gap.resource)
        if gap.document in (
            "network-acls",
            "security-groups",
            "route-tables",
            "network-interfaces",
            "subnets",
        ):
            return f"aws ec2 describe-{gap.document}{in_vpc} --output json > {gap.document}.json"
    return "aws ec2 describe-instances --filters Name=instance-state-name,Values=running --output json"
