"""MASTER_ADDR: what it says, what it resolves to, and whether rank 0 is there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

from diagnosis import environment
from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import claims, started, variable, where
from diagnosis.membership import Member, is_loopback
from diagnosis.opinion import Opinion
from diagnosis.published import only_here, parse_address
from diagnosis.report import ConnectOutcome, Contact, Finding, Meeting

_DEAD = (ConnectOutcome.TIMED_OUT, ConnectOutcome.UNREACHABLE)
# Where nodes disagree, the disagreement is the cause.
_NEEDS_AGREEMENT = ("public-address", "master-addr-not-a-member", "master-unreachable")


@dataclass(frozen=True)
class _Problem:
    cause_id: str
    words: str
    evidence: Tuple[str, ...] = ()


def judge_master(case: Case) -> Opinion:
    """The causes of the group "rendezvous" that MASTER_ADDR alone decides."""
    values = master_claims(case)
    places: Dict[Tuple[str, str], List[int]] = {}
    problems: Dict[int, _Problem] = {}
    for place, value in values.items():
        problem = _problem(case, place, value)
        alike = len(set(values.values())) == 1
        if problem is not None and (alike or problem.cause_id not in _NEEDS_AGREEMENT):
            problems[place] = problem
            places.setdefault((problem.cause_id, value), []).append(place)
    found = [
        _finding(case, subject, own, value, problems[own[0]])
        for (_, value), meant in places.items()
        for subject, own in where(case, meant)
    ]
    return Opinion(causes=tuple(found))


def master_claims(case: Case) -> Dict[int, str]:
    """MASTER_ADDR of each member that has one."""

    def told(member: Member) -> Optional[str]:
        value = variable(member, "MASTER_ADDR")
        if value is None and member.report is not None:
            return member.report.master_address
        return value

    return claims(case, told)


def as_meant(case: Case, place: int, value: str) -> str:
    """MASTER_ADDR for comparison: a name of rank 0 counts as its address, loopback does on its host."""
    master = case.roster.master()
    if master is None:
        return value
    host = master.report.host if master.report else None
    names = {master.name, master.address, host.hostname if host else None}
    contact = store_contact(case, place)
    resolved = contact.addresses if contact is not None and contact.host == value else None
    local = case.members[place].address == master.address and _all_loopback(value, resolved)
    addresses = {*names, *_other_addresses(case, place, master)}
    return master.address if value in addresses or addresses & set(resolved or ()) or local else value


def _other_addresses(case: Case, place: int, master: Member) -> Set[str]:
    """Addresses of rank 0's host on other networks: its store listens on all; not those that are dead."""
    contact = store_contact(case, place)
    host = master.report.host if master.report else None
    if contact is None or contact.outcome in _DEAD or host is None:
        return set()
    return {
        address
        for name, found in (host.interfaces or {}).items()
        for address in found
        if not is_loopback(address) and not only_here(address, name)
    }


def store_contact(case: Case, place: int) -> Optional[Contact]:
    """What this member found at MASTER_ADDR:MASTER_PORT; None where it did not look."""
    report = case.members[place].report
    found = (report.contacts or ()) if report else ()
    return next((contact for contact in found if contact.meeting is Meeting.STORE), None)


def _all_loopback(value: str, resolved: Optional[Tuple[str, ...]]) -> bool:
    addresses = resolved or (value,)
    return value == "localhost" or all(is_loopback(address) for address in addresses)


def _problem(case: Case, place: int, value: str) -> Optional[_Problem]:
    """What is wrong with this member's value; None where nothing is, or nothing is known."""
    if not value.strip():
        return _Problem("master-addr-empty", "is empty")
    if not environment.host_is_well_formed(value):
        return _Problem("master-addr-malformed", "is neither a host name nor an address")
    contact = store_contact(case, place)
    resolved = contact.addresses if contact is not None and contact.host == value else None
    if resolved == ():
        why = (contact.error if contact else None) or "no address"
        return _Problem("master-addr-unresolvable", "does not resolve", (f"the resolver says: {why}",))
    if parse_address(value) is None and resolved is None and value != "localhost":
        return None  # a name, and nobody looked it up
    return _elsewhere(case, place, value, resolved, contact)


def _elsewhere(
    case: Case, place: int, value: str, resolved: Optional[Tuple[str, ...]], contact: Optional[Contact]
) -> Optional[_Problem]:
    """A well-formed address that is not rank 0's."""
    master = case.roster.master()
    if case.roster.absent or master is None or as_meant(case, place, value) == master.address:
        return None
    at = f", which is {resolved[0]} here" if resolved and resolved[0] != value else ""
    if _all_loopback(value, resolved):
        words = f"is this host's own loopback{at}; rank 0 is at {master.address}"
        alone = case.roster.one_host or case.members[place].address == master.address
        return None if alone else _Problem("master-addr-not-a-member", words)
    parsed = parse_address(resolved[0] if resolved else value)
    if parsed is not None and parsed.is_global and not ipaddress.ip_address(master.address).is_global:
        return _Problem("public-address", f"is public{at}; rank 0's private address is {master.address}")
    tried = (_tried(case, place, contact),) if contact is not None and contact.outcome is not None else ()
    members = {member.address for member in case.members}
    if contact is not None and contact.outcome in _DEAD and str(parsed) not in members:
        words = f"does not answer on port {contact.port}{at}; rank 0's address is {master.address}"
        return _Problem("master-unreachable", words, tried)
    words = f"is not rank 0's address, which is {master.address}{at}"
    return _Problem("master-addr-not-a-member", words, tried)


def _tried(case: Case, place: int, contact: Contact) -> str:
    outcome = contact.outcome.value if contact.outcome else "not tried"
    return f"{case.subject(place)} -> {contact.address}:{contact.port}: {outcome}"


def _finding(case: Case, subject: str, own: Sequence[int], value: str, problem: _Problem) -> Finding:
    lines = [f"{case.subject(place)} MASTER_ADDR={value!r}" for place in own[:NAMED_AT_MOST]]
    contact = store_contact(case, own[0])
    fields = case.fields(own[0])
    if problem.cause_id == "master-unreachable" and contact is not None:
        fields.update(master_address=value, master_port=contact.port)
    return finding(
        problem.cause_id,
        subject,
        summary=f"MASTER_ADDR={value!r} {problem.words}",
        evidence=[*lines, *problem.evidence],
        fields={**fields, "name": value},
        at_s=started(case, own),
    )
