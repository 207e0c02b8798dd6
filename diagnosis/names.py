"""Names and interfaces: which address each node will publish, and whether others can dial it."""

from __future__ import annotations

import re
from typing import Dict, Optional, Tuple

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.membership import Member, is_loopback
from diagnosis.opinion import NOTHING, Opinion, total
from diagnosis.published import Published, interface_value, only_here, parse_address, published
from diagnosis.report import Finding, HostFacts

_NOT_A_NAME = re.compile(r"[\^=\s:]|^$")


def judge_names(case: Case) -> Opinion:
    """Addressing causes, from each node's own name, interfaces and GLOO_SOCKET_IFNAME."""
    if case.roster.one_host:  # loopback and one host's names are fair there
        return NOTHING
    places = range(len(case.members))
    opinions = [_heterogeneous(case)]
    alike = {finding_.subject for finding_ in opinions[0].causes}
    for place in places:
        host = _host(case.members[place])
        if host is None:
            continue
        opinions.append(_Node(case, place, host).judge(told="cluster" in alike))
    return total(opinions)


def unread_names(member: Member) -> Tuple[str, ...]:
    """Questions about names and interfaces that this member's row leaves open."""
    if member.report is None:
        return ()
    host = member.report.host
    if host is None:
        return (f"{member.subject}: the host was not looked at",)
    open_questions = {
        "its own name": host.hostname is None,
        "what its own name resolves to": host.hostname_addresses is None,
        "its interfaces": host.interfaces is None,
        "its ephemeral port range": host.local_port_range is None,
    }
    reason = f" ({host.hostname_error})" if host.hostname_addresses is None and host.hostname_error else ""
    return tuple(
        f"{member.subject}: {question} was not read{reason if 'resolves' in question else ''}"
        for question, is_open in open_questions.items()
        if is_open
    )


def _host(member: Member) -> Optional[HostFacts]:
    return member.report.host if member.report else None


class _Node:
    """One member's names and interfaces."""

    def __init__(self, case: Case, place: int, host: HostFacts) -> None:
        self._case = case
        self._place = place
        self._host = host
        self._local = {address for found in (host.interfaces or {}).values() for address in found}

    def judge(self, told: bool) -> Opinion:
        """told: a cause of the whole cluster already says that the interface is missing here."""
        value = interface_value(self._host)
        found = self._by_name() if value is None else self._by_interfaces(value, told)
        return NOTHING if found is None else Opinion(causes=(found,))

    def _named(self, cause_id: str, summary: str, *evidence: str) -> Finding:
        report = self._case.members[self._place].report
        return finding(
            cause_id,
            self._case.subject(self._place),
            summary=f"{self._case.name(self._place)}: {summary}",
            evidence=evidence,
            fields=self._case.fields(self._place),
            at_s=report.started_at if report else None,
        )

    # --- the host's own name -----------------------------------------------------------------

    def _by_name(self) -> Optional[Finding]:
        name, addresses = self._host.hostname, self._host.hostname_addresses
        resolves = f"{name} resolves to {', '.join(addresses) if addresses else 'nothing'}"
        if name is None:
            return None
        if not name.strip():
            return self._named("hostname-empty", "its host name is blank", f"hostname: {name!r}")
        if name.isdigit() or (addresses and all(address.startswith("0.") for address in addresses)):
            return self._named("hostname-numeric", f"its host name {name} is read as a number", resolves)
        if addresses is None:
            return None
        if not addresses:
            error = self._host.hostname_error or "no address"
            words = f"its own name {name} does not resolve ({error})"
            return self._named("hostname-unresolvable", words, resolves)
        return self._by_published(name, addresses, resolves)

    def _by_published(self, name: str, addresses: Tuple[str, ...], resolves: str) -> Optional[Finding]:
        """Gloo publishes the first address of the name that it can bind; loopback it always can."""
        own = published(self._host)
        if own is None:
            words = f"its own name {name} resolves to {addresses[0]}, which this host does not have"
            return self._named(
                "hostname-stale-ip", words, resolves, f"addresses: {', '.join(sorted(self._local))}"
            )
        if is_loopback(own.address):
            words = f"its own name {name} resolves to {own.address}, so Gloo publishes loopback"
            return self._named("hostname-loopback", words, resolves, "GLOO_SOCKET_IFNAME is not set")
        return self._wrong_interface(own)

    def _wrong_interface(self, own: Published) -> Optional[Finding]:
        """A published address that only this host can use; another routable one may be meant."""
        member = self._case.members[self._place]
        if own.address == member.address or not only_here(own.address, own.holder):
            return None
        of = f" of {own.holder}" if own.holder else ""
        words = f"Gloo publishes {own.address}{of}, which members cannot reach"
        return self._named("wrong-interface", words, own.how, f"the member's address is {member.address}")

    # --- GLOO_SOCKET_IFNAME --------------------------------------------------------------------

    def _by_interfaces(self, value: str, told: bool) -> Optional[Finding]:
        if self._host.interfaces is None:
            return None
        judged = (self._by_interface(name, value, told) for name in value.split(","))
        return next((found for found in judged if found is not None), None)

    def _by_interface(self, name: str, value: str, told: bool) -> Optional[Finding]:
        interfaces = self._host.interfaces or {}
        shown = f"GLOO_SOCKET_IFNAME={value}"
        have = f"interfaces: {', '.join(sorted(interfaces))}"
        problem = _syntax_problem(name, interfaces)
        if problem:
            return self._named("ifname-syntax", f"{shown}: {problem}", shown, have)
        addresses = interfaces.get(name)
        if not addresses:
            what = "has no address" if name in interfaces else "does not exist"
            missing = self._named("ifname-missing", f"{shown}, but {name} {what} here", shown, have)
            return None if told else missing
        if name == "lo" or is_loopback(addresses[0]):
            return self._named("ifname-loopback", f"{shown}, so Gloo publishes {addresses[0]}", shown)
        return self._wrong_interface(Published(address=addresses[0], holder=name, how=shown))


def _syntax_problem(name: str, interfaces: Dict[str, Tuple[str, ...]]) -> str:
    if name in interfaces:
        return ""
    if not name:
        return "an entry between commas is empty"
    if _NOT_A_NAME.search(name) or parse_address(name) is not None:
        return f"{name!r} is not an exact interface name"
    longer = sorted(other for other in interfaces if other.startswith(name))
    return (
        f"{name!r} is only the beginning of {', '.join(longer)}, and Gloo compares exactly" if longer else ""
    )


def _heterogeneous(case: Case) -> Opinion:
    """One value for all nodes, and an interface of that name on some of them only."""
    hosts = [(place, _host(member)) for place, member in enumerate(case.members)]
    told = [
        (place, host, interface_value(host)) for place, host in hosts if host is not None and host.interfaces
    ]
    values = {value for _, _, value in told}
    if len(told) < 2 or len(values) != 1 or None in values:
        return NOTHING
    value = str(next(iter(values)))
    lacking = [p for p, host, _ in told if any(not (host.interfaces or {}).get(n) for n in value.split(","))]
    if not lacking or len(lacking) == len(told):
        return NOTHING
    if any(_syntax_problem(name, host.interfaces or {}) for _, host, _ in told for name in value.split(",")):
        return NOTHING
    ranks = ", ".join(str(case.members[place].rank) for place in lacking)
    evidence = [
        f"{case.subject(place)} interfaces: {', '.join(sorted(host.interfaces or {}))}"
        for place, host, _ in told
    ]
    reports = [case.members[place].report for place in lacking]
    peer = case.fields(lacking[0], next(place for place, _, _ in told if place not in lacking))
    cause = finding(
        "ifname-heterogeneous",
        "cluster",
        summary=f"GLOO_SOCKET_IFNAME={value} on every node, but there is no such interface on rank {ranks}",
        evidence=evidence,
        fields=peer,
        at_s=min((r.started_at for r in reports if r and r.started_at is not None), default=None),
    )
    return Opinion(causes=(cause,))
