"""The words for silent drops: a host that drops, and what to ask where nothing is certain."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence, Set, Tuple, TypedDict

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.firewall import fixes as firewall_fixes
from diagnosis.firewall.ruleset import Stop, unique
from diagnosis.matrix import Flow
from diagnosis.opinion import Opinion, undetermined
from diagnosis.report import Finding


class Mending(TypedDict, total=False):
    """What a finding says in place of the catalogue's words."""

    commands: Sequence[str]
    remediation: str


Options = Sequence[Tuple[str, str]]
"""Candidates in order: (cause id, subject)."""


def host_drops(case: Case, flows: Sequence[Flow], place: int, rules: Sequence[Stop]) -> Finding:
    """os-firewall-drop at a member. rules: those that drop; () = those that may."""
    allowed = all(case.rules_block(flow) is False for flow in flows)
    maybe = [stop for flow in flows for stop in case.firewalls.rules(flow, place)]
    ruleset = unique(tuple(rules or maybe))[:NAMED_AT_MOST]
    unread = case.firewalls.unread([place])
    evidence = [*case.evidence(flows), *(f"{case.subject(place)} ruleset: {stop}" for stop in ruleset)]
    if allowed:
        evidence.append("the account's security groups, network ACLs and routes allow these flows")
    if case.firewalls.stops_itself(place, flows):
        evidence.append(over_loopback(case, place))
    if unread and not ruleset:
        evidence.append(f"{case.subject(place)} ruleset: could not be read{_why_unread(case, place)}")
    return finding(
        "os-firewall-drop",
        case.subject(place),
        summary=f"{case.name(place)} drops new connections on {case.ports(flows)} "
        f"({count(case, flows)}, silent drop)"
        + (f": {ruleset[0]}" if ruleset else "; the account's rules allow them"),
        evidence=evidence,
        **mending(case, place, ruleset),
        at_s=case.at_s(flows),
    )


def mending(case: Case, place: int, rules: Sequence[Stop]) -> Mending:
    """Commands that let the members through these rules; the catalogue's, which look, where none was read."""
    if not rules:
        return {}
    # Over loopback a host is a peer of its own.
    own = () if case.firewalls.stops_own(place) else (place,)
    ipv6 = ":" in case.members[place].address
    peers = [
        member.address
        for end, member in enumerate(case.members)
        if end not in own and (":" in member.address) is ipv6
    ]
    mended: Mending = {"commands": firewall_fixes.commands(rules, peers)}
    if not firewall_fixes.lasting(rules):
        mended["remediation"] = firewall_fixes.LASTING
    return mended


def over_loopback(case: Case, place: int) -> str:
    """The evidence line for a host that does not reach its own listeners."""
    return f"{case.subject(place)} does not reach its own listeners either, where only its firewall can be"


def ask_hosts(
    case: Case, options: Options, flows: Set[Flow], evidence: Sequence[str], node: Optional[int] = None
) -> Opinion:
    """Undetermined, and a look at a host's firewall decides."""
    places = [node] if node is not None else sorted({f.destination for f in flows})
    unread = case.firewalls.unread(places) or case.firewalls.unread(place for f in flows for place in f.pair)
    if not unread:
        return ask_rules(case, options, flows, evidence, node)
    lines = [f"{member.subject} ruleset: could not be read" for member in unread[:NAMED_AT_MOST]]
    command = f"sudo nft list ruleset  # on {unread[0].name} ({unread[0].address})"
    return _undetermined(case, options, flows, (*evidence, *lines), command=command, node=node)


def ask_rules(
    case: Case, options: Options, flows: Set[Flow], evidence: Sequence[str], node: Optional[int] = None
) -> Opinion:
    """Undetermined, and a look at the account's rules decides; away from AWS, a look at the wire."""
    first = case.members[node if node is not None else min(f.destination for f in flows)]
    if not first.member_id.startswith("i-"):
        command = (
            f"sudo tcpdump -ni any 'tcp[tcpflags] & tcp-syn != 0 and dst host {first.address}'"
            f"  # on {first.name}, while another member probes: what arrives is dropped by this host"
        )
    elif {option[0] for option in options} <= {"nacl-deny", "route-missing"}:
        command = "aws ec2 describe-network-acls --query 'NetworkAcls[].[NetworkAclId,Associations,Entries]'"
    else:
        command = (
            "aws ec2 describe-security-group-rules --filters Name=group-id,Values=$(aws ec2 "
            f"describe-instances --instance-ids {first.member_id} --output text --query "
            "\"join(',', Reservations[].Instances[].SecurityGroups[].GroupId)\")"
        )
    return _undetermined(case, options, flows, evidence, command=command, node=node)


def _undetermined(
    case: Case,
    options: Options,
    flows: Set[Flow],
    evidence: Sequence[str],
    *,
    command: str,
    node: Optional[int],
) -> Opinion:
    where = "" if node is None else f" around {case.name(node)}"
    return undetermined(
        options,
        why=f"new connections on {case.ports(flows)} die silently{where} ({count(case, flows)})",
        evidence=evidence,
        next_command=command,
        fields=case.fields(node),
        at_s=case.at_s(flows),
    )


def count(case: Case, flows: Iterable[Flow]) -> str:
    """ "12 of 12 pairs"."""
    pairs = {flow.pair for flow in flows}
    return f"{len(pairs)} of {len(case.matrix.attempted_pairs())} pairs"


def flow_order(flow: Flow) -> Tuple[int, int, int]:
    return (flow.source, flow.destination, flow.port)


def _why_unread(case: Case, place: int) -> str:
    report = case.members[place].report
    error = report.host.firewall_error if report and report.host else None
    return f" ({error})" if error else ""
