"""Who belongs to the cluster, with which rank, and whose row is there."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from cluster.ports import PortRange
from diagnosis.report import NodeReport

# Member ids that tell a rank: "10.0.0.5-4242-rank-3", and "rank-3" of one that was never met.
_CLAIMED_IN_ID = re.compile(r"(?:^|-)rank-(\d+)$")


@dataclass(frozen=True)
class Expectation:
    """What was planned; a planned question without an answer is never PASS.

    nodes: how many members must meet.
    ephemeral: the range Gloo's listeners come from; None = each node's own.
    stages: which stages were to run: "mesh", "collective".
    registered: member_id -> address of those who registered, with or without a row.
    deadline_passed: nobody else is waited for.
    cluster: the cluster's name (for commands).
    rules_expected: whether the account's rules were to be read, so that "does anybody else get
        in" is a planned question.
    rules_problem: why they were not read.
    met_on_a_port: members meet on a port of rank 0 and not every host is known, so that where no other
        host came they may all have been kept from it; where they meet elsewhere, they are missing.
    baselines: instance type -> its guaranteed bandwidth in Gbit/s, as far as EC2 told it.
    """

    nodes: int
    master_port: int
    ephemeral: Optional[PortRange] = None
    stages: Tuple[str, ...] = ("mesh",)
    registered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    deadline_passed: bool = True
    cluster: str = ""
    rules_expected: bool = False
    rules_problem: str = ""
    baselines: Mapping[str, float] = dataclasses.field(default_factory=dict)
    met_on_a_port: bool = False


@dataclass(frozen=True)
class Member:
    """One member. report: None = it registered (or a peer saw it), but sent no row."""

    member_id: str
    address: str
    rank: int
    name: str
    report: Optional[NodeReport] = None

    @property
    def subject(self) -> str:
        return f"node:{self.rank}"


@dataclass(frozen=True)
class Roster:
    """Every known member by rank, and how many of the expected never appeared."""

    members: Tuple[Member, ...]
    absent: int
    absent_ranks: Tuple[int, ...]  # known only where ranks were claimed

    @property
    def one_host(self) -> bool:
        """Whether all members are on one host (one address, or all loopback): loopback is fair there.

        One member alone does not tell where the others are.
        """
        if len(self.members) == 1 and self.absent:
            return is_loopback(self.members[0].address)
        addresses = {member.address for member in self.members}
        return len(addresses) <= 1 or all(is_loopback(address) for address in addresses)

    def master(self) -> Optional[Member]:
        return next((member for member in self.members if member.rank == 0), None)


def pair_subject(source: Member, destination: Member) -> str:
    return f"pair:{source.rank}>{destination.rank}"


def is_loopback(address: str) -> bool:
    """Whether this is 127.x or ::1; what is no address is not."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def address_key(address: str) -> Tuple[int, int, str]:
    """Sorts addresses by number: 10.0.0.9 before 10.0.0.10; what is no address comes last."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return (9, 0, address)
    return (parsed.version, int(parsed), "")


def merge_rows(reports: Sequence[NodeReport]) -> Tuple[NodeReport, ...]:
    """One row a member: a member writes one a stage, and a later one holds more.

    What a later row leaves out (a failure's row holds no probes) is kept from the earlier.
    """
    by_id: Dict[str, List[NodeReport]] = {}
    for report in reports:
        by_id.setdefault(report.member_id, []).append(report)
    return tuple(_merge(rows) for rows in by_id.values())


def _merge(rows: Sequence[NodeReport]) -> NodeReport:
    if len(rows) == 1:
        return rows[0]
    ordered = sorted(rows, key=lambda row: row.finished_at or row.started_at or 0.0, reverse=True)
    newest = ordered[0]
    filled: Dict[str, Any] = {}
    for field in dataclasses.fields(NodeReport):
        values = [getattr(row, field.name) for row in ordered]
        if field.name in ("failures", "publish_errors"):
            filled[field.name] = tuple(dict.fromkeys(item for value in reversed(values) for item in value))
        else:
            filled[field.name] = next((value for value in values if value not in (None, {}, "")), values[0])
    return dataclasses.replace(newest, **filled)


def take_roll(reports: Sequence[NodeReport], expectation: Expectation) -> Roster:
    """Rows, registrations and what peers saw, made one list of members with ranks.

    Ranks: the claimed ones; members without a claim get the free numbers by address.
    """
    rows = {report.member_id: report for report in merge_rows(reports)}
    addresses: Dict[str, str] = {}
    for report in rows.values():
        addresses.update(report.members)
    addresses.update(expectation.registered)
    addresses.update({member_id: report.address for member_id, report in rows.items()})

    claims = {member_id: _claim(member_id, rows.get(member_id)) for member_id in addresses}
    taken = {rank for rank in claims.values() if rank is not None}
    free = (rank for rank in range(len(addresses) + len(taken) + 1) if rank not in taken)
    members = []
    for member_id in sorted(addresses, key=lambda key: (address_key(addresses[key]), key)):
        claimed = claims[member_id]
        row = rows.get(member_id)
        members.append(
            Member(
                member_id=member_id,
                address=addresses[member_id],
                rank=next(free) if claimed is None else claimed,
                name=row.name if row else member_id,
                report=row,
            )
        )
    members.sort(key=lambda member: (member.rank, address_key(member.address), member.member_id))
    absent = max(0, expectation.nodes - len(members))
    known = bool(claims) and all(rank is not None for rank in claims.values())
    gaps = tuple(sorted(set(range(expectation.nodes)) - taken)) if known and absent else ()
    return Roster(members=tuple(members), absent=absent, absent_ranks=gaps)


def _claim(member_id: str, row: Optional[NodeReport]) -> Optional[int]:
    if row is not None and row.rank is not None:
        return row.rank
    return rank_in_id(member_id)


def rank_in_id(member_id: str) -> Optional[int]:
    """The rank that a member id tells; None where it tells none."""
    matched = _CLAIMED_IN_ID.search(member_id)
    return int(matched.group(1)) if matched else None
