"""Rules about what a node publishes, and what its peers find when they dial that."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from diagnosis.environment import UNREAD, without_effect
from diagnosis.explain_claims import (
    GAI_NAMES,
    Claim,
    Tier,
    View,
    is_loopback,
    is_unroutable,
    node,
    numeric_name,
    real_port,
    setting,
    suspects,
)
from diagnosis.explain_facts import Fact, Kind, compiled

# What live evidence decides: the mesh probed both ways, each pair, on every kind of port.
PROBE = (
    "RANK={rank} WORLD_SIZE={world_size} MASTER_ADDR={master_address} MASTER_PORT={master_port} "
    "fullmesh check --no-collective"
)
# An interface's name is at most 15 bytes without blanks and slashes (linux/if.h).
_NAME = r"[A-Za-z0-9_.:@-]{1,15}"
_PREFIX = r"(?:eth|en|ens|eno|enp|enx|enX|ib|bond|wlan|wlp|team|hsn)"
_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*"
_VIRTUAL = r"docker\d*|br-[0-9a-f]+|virbr\d*|veth\w*|tun\d*|tailscale\d*|cni\d*|flannel\S*"


def address_claims(view: View) -> List[Claim]:
    """Everything about names, interfaces and published addresses."""
    return [*_interfaces(view), *_own_name(view), *_families(view), *_dialled(view), *_settings(view)]


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
        raw = fact.values.get("name", "")
        name = raw.strip().rstrip(".")
        # One blank always stands before the name; a second one belongs to it.
        why = wrong_syntax(name)
        if why:
            claims.append(
                Claim(
                    id="ifname-syntax",
                    facts=(fact,),
                    subject=node(fact.rank),
                    summary=f"GLOO_SOCKET_IFNAME holds {name!r}: {why}",
                )
            )
            continue
        same_value = {setting(item) for item in view.book.settings("GLOO_SOCKET_IFNAME")} == {name}
        others = [item for item in view.mesh_begun if item.rank not in (None, fact.rank)]
        if same_value and fact.rank is not None and others:
            claims.append(
                Claim(
                    id="ifname-heterogeneous",
                    facts=(fact, others[0]),
                    subject=node(fact.rank),
                    summary=f"GLOO_SOCKET_IFNAME={name} is set for all, rank {others[0].rank} got past "
                    "it, and rank "
                    f"{fact.rank} has no such interface",
                )
            )
            continue
        claims.append(
            Claim(
                id="ifname-missing",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"Gloo was told to use the interface {name!r}, and this host has none of that "
                "name with an "
                "address",
            )
        )
    return claims


def _own_name(view: View) -> List[Claim]:
    claims = []
    for fact in view.book.all(Kind.NOT_LOCAL):
        ip, name = fact.get("ip"), fact.get("name")
        number = numeric_name(ip) if ip else (int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None)
        if number is not None:
            claims.append(
                Claim(
                    id="hostname-numeric",
                    facts=(fact,),
                    subject=node(fact.rank),
                    summary=f"the host name is the number {number}, which the resolver reads as the address "
                    f"{ip or '0.x.x.x'}",
                    fields={"name": number},
                )
            )
            continue
        claims.append(
            Claim(
                id="hostname-stale-ip",
                facts=(fact,),
                subject=node(fact.rank),
                summary=f"the host's own name{' ' + name if name else ''} resolves to "
                f"{ip or 'an address'} that no "
                "interface of this host has",
                fields={"name": name},
            )
        )
    for fact in view.book.all(Kind.NAME_FAILED):
        code = fact.get("code")
        claims.append(
            Claim(
                id="hostname-stale-ip"
                if compiled(_ADDRESS).fullmatch(fact.get("name"))
                else "hostname-unresolvable",
                facts=(fact,),
                subject=node(fact.rank),
                summary="the name Gloo was to listen on has no local address"
                + (f" (gai error {code}: {GAI_NAMES.get(code, 'unknown')})" if code else ""),
                fields={"name": fact.get("name")},
            )
        )
    fallback = view.book.all(Kind.LOOPBACK_FALLBACK)
    if fallback and not view.book.progress_after(fallback):
        claims += [
            Claim(
                id="hostname-unresolvable",
                facts=(fact, *_loopback_errors(view)[:1]),
                subject=node(fact.rank),
                summary="the host's own name resolves to no address of this host, so Gloo publishes "
                "loopback, where "
                "no other host finds it",
            )
            for fact in fallback[:4]
        ]
    return claims


def _families(view: View) -> List[Claim]:
    facts = view.book.all(Kind.FAMILIES)
    if not facts:
        return []
    return [
        Claim(
            id="ipv4-ipv6-mismatch",
            facts=tuple(facts[:2]),
            summary="one rank publishes IPv4 (family 2) and another IPv6 (family 10); Gloo cannot pair them",
        )
    ]


def _loopback_errors(view: View) -> List[Fact]:
    return [fact for fact in view.book.all(Kind.PAIR_ERROR) if is_loopback(fact.get("ip"))]


def _dialled(view: View) -> List[Claim]:
    """Addresses that peers published and that did not answer."""
    claims: List[Claim] = []
    seen: Dict[Tuple[str, str], Fact] = {}
    for fact in view.book.all(Kind.PAIR_ERROR):
        seen.setdefault((fact.get("ip"), fact.get("error")), fact)
    for (ip, error), fact in seen.items():
        port = real_port(fact.get("port"))
        what = unroutable = is_unroutable(ip)
        number = numeric_name(ip)
        if number is not None:
            summary = f"a peer's host name is the number {number}: it published {ip}"
            claims.append(
                Claim(id="hostname-numeric", facts=(fact,), summary=summary, fields={"name": number})
            )
        elif is_loopback(ip):
            claims += _published_loopback(view, fact, port)
        elif unroutable is not None:
            claims.append(
                Claim(
                    id="wrong-interface",
                    facts=(fact,),
                    summary=f"a peer published {ip}, {what}, which does not answer from here ({error}, "
                    f"port {port})",
                )
            )
    return claims


def _published_loopback(view: View, fact: Fact, port: str) -> List[Claim]:
    ip = fact.get("ip")
    summary = f"a peer published {ip}, its own loopback: this rank dialled itself, port {port}"
    values = [item for item in view.book.settings("GLOO_SOCKET_IFNAME") if setting(item) == "lo"]
    if values:
        return [Claim(id="ifname-loopback", facts=(values[0], fact), summary=summary)]
    # 127.0.1.1 stands in /etc/hosts of Debian's family and nowhere else; 127.0.0.1 may be one machine's job.
    if view.several_hosts or (not ip.startswith("127.0.0.") and ip.startswith("127.")):
        return [Claim(id="hostname-loopback", facts=(fact,), summary=summary, tier=Tier.SELF_EVIDENT)]
    return suspects(
        ("hostname-loopback", "hostname-unresolvable", "ifname-loopback", "peer-died"),
        (fact,),
        f"a peer published {ip}: wrong where the job has several hosts, and a peer that ended where it "
        "has one",
        ask="getent ahosts $(hostname); echo GLOO_SOCKET_IFNAME=$GLOO_SOCKET_IFNAME",
    )


def _settings(view: View) -> List[Claim]:
    """Values that are wrong by themselves, or that nothing reads."""
    claims: List[Claim] = []
    for fact in view.book.settings("GLOO_SOCKET_IFNAME"):
        for name in setting(fact).rstrip(",").split(","):
            if name.startswith(("$", "<", "`", "{")) or not setting(fact):
                continue  # a script's text, or a name that was blanked out
            why = wrong_syntax(name)
            if why:
                summary = f"GLOO_SOCKET_IFNAME holds {name!r}: {why}"
                claims.append(
                    Claim(id="ifname-syntax", facts=(fact,), summary=summary, subject=node(fact.rank))
                )
                break
            failed = view.book.has(Kind.PAIR_ERROR, Kind.PAIR_TIMEOUT, Kind.PAIR_HIDDEN)
            if name == "lo" and failed and view.several_hosts:
                summary = "GLOO_SOCKET_IFNAME=lo publishes loopback, and the job has several hosts"
                claims.append(
                    Claim(id="ifname-loopback", facts=(fact,), summary=summary, subject=node(fact.rank))
                )
            if compiled(_VIRTUAL).fullmatch(name) and failed:
                summary = f"GLOO_SOCKET_IFNAME={name} publishes the address of an interface inside the host"
                claims.append(
                    Claim(id="wrong-interface", facts=(fact,), summary=summary, subject=node(fact.rank))
                )
    names = {
        fact.get("name"): fact for fact in view.book.all(Kind.SETTING) if fact.get("name").startswith("GLOO_")
    }
    for name, works in without_effect(dict.fromkeys(names, "")):
        known = f"; what works: {UNREAD[name]}" if name in UNREAD else ""
        claims.append(
            Claim(
                id="env-no-effect",
                facts=(names[name],),
                summary=f"no release of Gloo or torch reads {name}{known or '; ' + works}",
                tier=Tier.SIDE,
                fields={"name": name},
            )
        )
    return claims
