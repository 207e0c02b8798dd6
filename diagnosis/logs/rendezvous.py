"""Rules about the store and the launcher: who came, what they dialled, what they were told."""

from __future__ import annotations

from typing import Dict, List

from diagnosis.environment import host_is_well_formed
from diagnosis.logs.claims import (
    ERRNO_NAMES,
    GAI_NAMES,
    UNREACHABLE,
    Claim,
    Tier,
    View,
    address,
    errno_of,
    host_of,
    is_loopback,
    node,
    numeric_name,
    setting,
    suspects,
)
from diagnosis.logs.facts import Fact, compiled
from diagnosis.logs.kinds import Kind

DIAL = "nc -zv -w 3 {master_address} {master_port}"
# Words that stand where a launcher should have put a name.
_PLACEHOLDER = (
    r"__\w+__|<.*>|\$.*|\{.*\}|%\(.*|(?i:none|null|undefined|nan|your[-_].*|master[-_]?(?:addr|ip"
    r"|node[-_]ip)|\w*placeholder\w*)"
)
_LIKE_ADDRESS = r"[\d.]*\d\.[\d.]*"


def rendezvous_claims(view: View) -> List[Claim]:
    """Everything about MASTER_ADDR, the store's connection and torchrun's rendezvous."""
    return [
        *_settings(view),
        *_listener(view),
        *_stranger(view),
        *_lookups(view),
        *_connects(view),
        *_store_ended(view),
    ]


def malformed(host: str) -> str:
    """Why a value can be no host; "" when it can."""
    if host != host.strip():
        return "it begins or ends with a blank"
    if compiled(_PLACEHOLDER).fullmatch(host):
        return "it is a placeholder that nobody replaced"
    if not host_is_well_formed(host):
        return "a host has no blanks, brackets, quotes, scheme, port or path"
    if compiled(_LIKE_ADDRESS).fullmatch(host) and address(host) is None:
        return "it looks like an address and is none"
    return ""


def _settings(view: View) -> List[Claim]:
    claims: List[Claim] = []
    for fact in view.book.all(Kind.ENV_MISSING):
        name = fact.get("name")
        claims.append(
            Claim(
                id="env-missing",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"{name} is not set: the script was not started by torchrun or another launcher "
                "that sets it",
                fields={"name": name},
            )
        )
    values = view.book.settings("MASTER_ADDR")
    empty = [fact for fact in values if not setting(fact)]
    blank = [
        fact
        for fact in view.book.all(Kind.STORE_TIMEOUT, Kind.STORE_GAI, Kind.STORE_ERRNO)
        if ("host" in fact.values or "bare" in fact.values) and not host_of(fact).strip()
    ]
    brackets = any("[]:" in fact.place.text and fact.kind is Kind.STORE_ERRNO for fact in blank)
    for fact in blank[:1]:
        cause = "hostname-empty" if brackets else "master-addr-empty"
        what = "a host name is blank" if brackets else "MASTER_ADDR is empty"
        claims.append(Claim(id=cause, facts=(fact,), summary=f"{what}: the message names no host"))
    if empty and not any(setting(fact) for fact in values) and not view.book.has(Kind.PROGRESS):
        claims.append(
            Claim(
                id="master-addr-empty",
                facts=tuple(empty[:2]),
                summary="MASTER_ADDR is empty: the launcher did not find the first host's address",
            )
        )
    failing = view.book.has(Kind.STORE_TIMEOUT, Kind.STORE_GAI, Kind.STORE_ERRNO, Kind.OTHER_ERROR)
    for fact in values:
        value = setting(fact).strip("'\"")
        if failing and value and not value.startswith(("$", "<", "{", "`")) and malformed(value):
            claims.append(_malformed(fact, value))
    return claims


def _malformed(fact: Fact, host: str) -> Claim:
    return Claim(
        id="master-addr-malformed",
        facts=(fact,),
        subject=node(fact.rank),
        summary=f"the store's host is {host!r}: "
        f"{malformed(host) or 'it holds a character that does not show'}",
        fields={"master_port": fact.get("port")},
    )


def _listener(view: View) -> List[Claim]:
    """A port that is held, where work behind it does not show that another was found."""
    gloo = {(fact.place.file, fact.place.line) for fact in view.book.all(Kind.GLOO_BIND)}
    taken = [f for f in view.book.all(Kind.PORT_TAKEN) if (f.place.file, f.place.line) not in gloo]
    if not taken or view.overcome(taken):
        return []
    first = next((fact for fact in taken if fact.get("port") or fact.get("last")), taken[0])
    port = first.get("port") or first.get("last")
    return [
        Claim(
            id="port-in-use",
            facts=(first,),
            subject=node(first.rank),
            summary=f"port {port or '(not named)'} of this host is held by another process",
            fields={"master_port": port},
        )
    ]


def _stranger(view: View) -> List[Claim]:
    """What answers at the store's port is no store. Its first four bytes are in the message."""
    strange = view.book.all(Kind.STORE_STRANGER)
    got = strange[0].number("got") if strange else None
    letters = (got or 0).to_bytes(8, "big").lstrip(b"\0")
    http = letters in (b"HTTP", b"PTTH") or letters[::-1] == b"HTTP"
    what = "an HTTP server or proxy" if http else "something"
    ids = ("proxy-sidecar", "port-in-use") if http else ("port-in-use", "proxy-sidecar", "version-mismatch")
    return suspects(
        ids if strange else (),
        strange[:1],
        f"{what} answers at the store's port that is no store of this torch",
        ask="sudo ss -ltnp 'sport = :{master_port}'",
    )


def _lookups(view: View) -> List[Claim]:
    """Names that the resolver does not know. Noise when the store was reached all the same."""
    claims: List[Claim] = []
    by_host: Dict[str, Fact] = {}
    for fact in view.book.all(Kind.STORE_GAI):
        if "host" in fact.values and host_of(fact).strip():
            by_host.setdefault(host_of(fact), fact)
    for host, fact in by_host.items():
        if numeric_name(host.strip()) is not None:
            continue
        later = [item for item in view.mesh_begun if item.order > fact.order]
        reached = any(item.rank == fact.rank and item.place.file == fact.place.file for item in later)
        if reached or view.book.progress_after([fact]):
            continue
        code = fact.get("code")
        why = f"gai error {code}: {GAI_NAMES.get(code, 'unknown')}"
        if malformed(host) or address(host) is not None:
            claims.append(_malformed(fact, host))
        else:
            claims.append(
                Claim(
                    id="master-addr-unresolvable",
                    facts=(fact,),
                    subject=node(fact.rank),
                    summary=f"the store's host {host} does not resolve ({why}; IPv6 in the message means "
                    "nothing)",
                    fields={"name": host, "master_port": fact.get("port")},
                )
            )
    return claims


def _connects(view: View) -> List[Claim]:
    """The store that does not answer."""
    book = view.book
    errors = [f for f in book.all(Kind.STORE_ERRNO) if f.get("errno") or f.get("final")]
    errors = [
        f
        for f in errors
        if not book.progress_after([f]) and (host_of(f).strip() or not {"host", "bare"} & set(f.values))
    ]
    waits = book.all(Kind.STORE_TIMEOUT)
    timeouts = [fact for fact in waits if not fact.get("retry")] or waits
    if book.progress_after(timeouts):
        timeouts = []
    hard = [fact for fact in errors if errno_of(fact) in UNREACHABLE]
    if hard and not _reached_later(view, hard[0]):
        fact = hard[0]
        number = errno_of(fact)
        return [
            Claim(
                id="master-unreachable",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"{host_of(fact)} port {fact.get('port')} cannot be reached (errno {number}: "
                f"{ERRNO_NAMES[number]}); a name in brackets is reverse DNS, not what was dialled",
                tier=Tier.ABSENCE,
                fields={"master_address": host_of(fact), "master_port": fact.get("port")},
            )
        ]
    shown = timeouts or errors
    if not shown or _reached_later(view, shown[-1]):
        return []
    hosts = {host_of(fact).strip() for fact in shown if host_of(fact).strip()}
    if not hosts and view.book.has(Kind.RENDEZVOUS):
        return []  # the rendezvous' own error says the same, with more
    if hosts and all(is_loopback(host) for host in hosts):
        return suspects(
            ("master-addr-not-a-member", "peer-missing", "store-host-exited"),
            shown[:1],
            "the store is looked for on loopback: right on rank 0's host alone, and only while rank 0 runs",
            ask="echo $MASTER_ADDR; sudo ss -ltnp 'sport = :{master_port}'",
        )
    refused = any(errno_of(fact) == "111" for fact in errors)
    ids = [
        "peer-missing",
        "master-addr-not-a-member",
        "store-host-exited",
        "env-inconsistent",
        "rdzv-host-unrecognised",
    ]
    if not refused:
        ids = [
            "master-unreachable",
            "master-addr-not-a-member",
            "peer-missing",
            "sg-no-self-ingress",
            "os-firewall-drop",
        ]
    if any(host.startswith("172.17.") for host in hosts):
        ids.insert(1, "wrong-interface")
    where = f" at {', '.join(sorted(hosts)[:3])}" if hosts else ""
    why = (
        "nothing listens" if refused else "nobody answered in the whole time: no host, a filter, or no rank 0"
    )
    return suspects(
        ids,
        shown[:1],
        f"the store{where} was not reached, and the text tells no more than that {why}",
        ask=DIAL,
    )


def _reached_later(view: View, fact: Fact) -> bool:
    """The same speaker got past the store."""
    return any(
        item.order > fact.order and item.rank == fact.rank and item.place.file == fact.place.file
        for item in view.mesh_begun
    ) or bool(view.book.progress_after([fact]))


def _store_ended(view: View) -> List[Claim]:
    closed = view.book.all(Kind.STORE_CLOSED)
    resets = view.book.all(Kind.STORE_RESET)
    if view.book.progress_after([*closed, *resets]) or view.left_after_work:
        return []
    if closed:
        return [
            Claim(
                id="store-host-exited",
                facts=(closed[0],),
                summary="the store closed the connection: the process that serves it (rank 0 or "
                "torchrun's agent) "
                "ended; its last lines tell why",
                tier=Tier.LEFT_BEHIND,
            )
        ]
    return (
        suspects(
            ("store-host-exited", "benign-retry", "listen-backlog", "proxy-sidecar"),
            resets[:1],
            "the connection to the store was reset; whether a retry succeeded is not in the text",
            ask="fullmesh explain RANK0.log",
        )
        if resets
        else []
    )
