"""Rules about what a node publishes, and what its peers find when they dial that."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from diagnosis.logs.claims import (
    GAI_NAMES,
    PROXY_ADDRESS,
    Claim,
    Tier,
    View,
    host_of,
    is_loopback,
    is_unroutable,
    node,
    numeric_name,
    real_port,
    setting,
    suspects,
)
from diagnosis.logs.facts import Fact, compiled
from diagnosis.logs.kinds import FAILURES, RETRIED, Kind
from diagnosis.variables import NEWEST_KNOWN, READ, UNREAD

# An interface's name is at most 15 bytes without blanks and slashes (linux/if.h).
_NAME = r"[A-Za-z0-9_.:@-]{1,15}"
_PREFIX = r"(?:eth|en|ens|eno|enp|enx|enX|ib|bond|wlan|wlp|team|hsn)"
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*"
_VIRTUAL = r"docker\d*|br-[0-9a-f]+|virbr\d*|veth\w*|tun\d*|tailscale\d*|cni\d*|flannel\S*"
# How a mesh fails for want of a right address.
_MESH = (Kind.PAIR_ERROR, Kind.PAIR_HIDDEN, Kind.PAIR_TIMEOUT, Kind.MESH_FAILED)
_HOST_COMMAND = "getent ahosts $(hostname); echo GLOO_SOCKET_IFNAME=$GLOO_SOCKET_IFNAME"


def address_claims(view: View) -> List[Claim]:
    """Everything about names, interfaces and published addresses."""
    return [
        *_interfaces(view),
        *_own_name(view),
        *_fallback(view),
        *_numeric_master(view),
        *_dialled(view),
        *_settings(view),
        *_unread(view),
    ]


def wrong_syntax(name: str) -> str:
    """Why a value is no exact name of an interface; "" when it may be one."""
    checks = (
        (not name.strip(), "an entry between commas is empty"),
        (name != name.strip() or re.search(r"\s", name), "it holds a blank"),
        (name[:1] in tuple("^=!%"), f"{name[:1]} is NCCL's syntax and means nothing to Gloo"),
        (compiled(_ADDRESS).fullmatch(name), "it is an address"),
        (compiled(_PREFIX).fullmatch(name), "it is a prefix, and Gloo compares whole names"),
        (not compiled(_NAME).fullmatch(name), "no interface can have such a name"),
    )
    return next((why for wrong, why in checks if wrong), "")


def _interfaces(view: View) -> List[Claim]:
    claims = []
    for fact in view.book.all(Kind.INTERFACE):
        # One blank always stands before the name; a second one belongs to it.
        name = fact.values.get("name", "").removeprefix(" ").rstrip(" .\r\t")
        subject = node(fact.rank)
        why = wrong_syntax(name)
        if why:
            summary = f"GLOO_SOCKET_IFNAME holds {name!r}: {why}"
            claims.append(Claim(id="ifname-syntax", facts=(fact,), subject=subject, summary=summary))
            continue
        same_value = {setting(item) for item in view.book.settings("GLOO_SOCKET_IFNAME")} == {name}
        others = [item for item in view.mesh_begun if item.rank not in (None, fact.rank)]
        if same_value and fact.rank is not None and others:
            summary = (
                f"GLOO_SOCKET_IFNAME={name} is set for all, rank {others[0].rank} got past it, and rank "
                f"{fact.rank} has no such interface"
            )
            shown = (fact, others[0])
            claims.append(Claim(id="ifname-heterogeneous", facts=shown, subject=subject, summary=summary))
            continue
        summary = (
            f"Gloo was told to use the interface {name!r}, and this host has no such one with an address"
        )
        claims.append(Claim(id="ifname-missing", facts=(fact,), subject=subject, summary=summary))
    return claims


def _own_name(view: View) -> List[Claim]:
    claims = []
    for fact in view.book.all(Kind.NOT_LOCAL):
        ip, name = fact.get("ip"), fact.get("name")
        number = numeric_name(ip or name)
        if number is not None:
            cause, summary = (
                "hostname-numeric",
                (
                    f"the host name is the number {number}, which the resolver reads as the address "
                    f"{ip or '0.x.x.x'}"
                ),
            )
        else:
            cause, summary = (
                "hostname-stale-ip",
                (
                    f"the host's own name{' ' + name if name else ''} resolves to {ip or 'an address'} that "
                    "no interface of this host has"
                ),
            )
        fields = {"name": number if number is not None else name}
        claims.append(Claim(id=cause, facts=(fact,), subject=node(fact.rank), summary=summary, fields=fields))
    for fact in view.book.all(Kind.NAME_FAILED):
        code = fact.get("code")
        stale = compiled(_ADDRESS).fullmatch(fact.get("name"))
        claims.append(
            Claim(
                id="hostname-stale-ip" if stale else "hostname-unresolvable",
                facts=(fact,),
                subject=node(fact.rank),
                summary="the name Gloo was to listen on has no local address"
                + (f" (gai error {code}: {GAI_NAMES.get(code, 'unknown')})" if code else ""),
                fields={"name": fact.get("name")},
            )
        )
    return claims


def _fallback(view: View) -> List[Claim]:
    """Gloo publishes loopback: why a mesh over several hosts fails, and harmless on one host."""
    facts = view.book.all(Kind.LOOPBACK_FALLBACK)
    if not facts or view.book.progress_after(facts):
        return []
    summary = (
        "the host's own name resolves to no address of this host, so Gloo publishes loopback, where no other "
        "host finds it"
    )
    if not view.book.has(*_MESH) and view.book.some(FAILURES - RETRIED - {Kind.ECHO}):
        # Something else failed, and the mesh did not: the warning may be years old on this host.
        return suspects(("hostname-unresolvable",), facts[:1], summary, ask=_HOST_COMMAND)
    loopback = [fact for fact in view.book.all(Kind.PAIR_ERROR) if is_loopback(fact.get("ip"))]
    return [
        Claim(
            id="hostname-unresolvable",
            facts=(fact, *loopback[:1]),
            subject=node(fact.rank),
            summary=summary,
        )
        for fact in facts[:4]
    ]


def _numeric_master(view: View) -> List[Claim]:
    """A number as the store's host: the resolver reads it as an address."""
    for fact in view.book.all(Kind.STORE_ERRNO, Kind.STORE_TIMEOUT, Kind.STORE_GAI):
        number = numeric_name(host_of(fact).strip())
        if number is not None and not view.book.progress_after([fact]):
            summary = f"the store's host is the number {number}, which the resolver reads as 0.x.x.x"
            return [Claim(id="hostname-numeric", facts=(fact,), summary=summary, fields={"name": number})]
    return []


def _dialled(view: View) -> List[Claim]:
    """Addresses that peers published and that did not answer."""
    claims: List[Claim] = []
    seen: Dict[Tuple[str, str], Fact] = {}
    for fact in view.book.all(Kind.PAIR_ERROR):
        seen.setdefault((fact.get("ip"), fact.get("error")), fact)
    for (ip, error), fact in seen.items():
        port = real_port(fact.get("port"))
        unroutable = is_unroutable(ip)
        number = numeric_name(ip)
        if number is not None:
            summary = f"a peer's host name is the number {number}: it published {ip}"
            claims.append(
                Claim(id="hostname-numeric", facts=(fact,), summary=summary, fields={"name": number})
            )
        elif is_loopback(ip) and ip != PROXY_ADDRESS:
            claims += _published_loopback(view, fact, port)
        elif unroutable is not None:
            summary = (
                f"a peer published {ip}, {unroutable}, which does not answer from here ({error}, port {port})"
            )
            if is_unroutable(view.master[0] or "") == unroutable:
                # The store stands in the same range: perhaps all members do.
                ids = ("wrong-interface", "peer-died", "os-firewall-reject")
                claims += suspects(ids, (fact,), summary, ask=f"ip -br address; {_HOST_COMMAND}")
            else:
                claims.append(Claim(id="wrong-interface", facts=(fact,), summary=summary))
    return claims


def _published_loopback(view: View, fact: Fact, port: str) -> List[Claim]:
    ip = fact.get("ip")
    summary = f"a peer published {ip}, its own loopback: this rank dialled itself, port {port}"
    values = [item for item in view.book.settings("GLOO_SOCKET_IFNAME") if setting(item) == "lo"]
    if values:
        return [Claim(id="ifname-loopback", facts=(values[0], fact), summary=summary)]
    # 127.0.1.1 stands in /etc/hosts of Debian's family and nowhere else; 127.0.0.1 may be one machine's job.
    if view.several_hosts or not ip.startswith(("127.0.0.", "::1", "localhost")):
        return [Claim(id="hostname-loopback", facts=(fact,), summary=summary)]
    return suspects(
        ("hostname-loopback", "hostname-unresolvable", "ifname-loopback", "peer-died"),
        (fact,),
        f"a peer published {ip}: wrong where the job has several hosts, and a peer that ended where it "
        "has one",
        ask=_HOST_COMMAND,
    )


def _settings(view: View) -> List[Claim]:
    """Values of GLOO_SOCKET_IFNAME that are wrong by themselves, unless they worked."""
    claims: List[Claim] = []
    failed = view.book.has(Kind.PAIR_ERROR, Kind.PAIR_TIMEOUT, Kind.PAIR_HIDDEN)
    for fact in view.book.settings("GLOO_SOCKET_IFNAME"):
        if view.book.progress_after([fact]):
            continue
        for name in setting(fact).rstrip(",").split(","):
            if name.startswith(("$", "<", "`", "{")) or not setting(fact):
                continue  # a script's text, or a name that was blanked out
            why, cause = wrong_syntax(name), "ifname-syntax"
            summary = f"GLOO_SOCKET_IFNAME holds {name!r}: {why}"
            if name == "lo" and failed and view.several_hosts:
                cause = "ifname-loopback"
                summary = "GLOO_SOCKET_IFNAME=lo publishes loopback, and the job has several hosts"
            elif not why and compiled(_VIRTUAL).fullmatch(name) and failed:
                cause = "wrong-interface"
                summary = f"GLOO_SOCKET_IFNAME={name} publishes the address of an interface inside the host"
            elif not why:
                continue
            claims.append(Claim(id=cause, facts=(fact,), summary=summary, subject=node(fact.rank)))
            break
    return claims


def _unread(view: View) -> List[Claim]:
    """Variables that nothing reads."""
    names = {
        fact.get("name"): fact for fact in view.book.all(Kind.SETTING) if fact.get("name").startswith("GLOO_")
    }
    return [
        Claim(
            id="env-no-effect",
            facts=(names[name],),
            summary=f"no release of Gloo or torch up to {NEWEST_KNOWN} reads {name}"
            + (f"; what works: {UNREAD[name].works}" if name in UNREAD else ""),
            tier=Tier.SIDE,
            fields={"name": name},
        )
        for name in sorted(names)
        if name not in READ
    ]
