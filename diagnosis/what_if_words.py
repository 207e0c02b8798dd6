"""Reads `--what-if`: one change to rules, groups or a network ACL, in words.

    revoke | authorize  SG [ingress|egress] PROTOCOL [PORTS] from|to SOURCE
    revoke              SG sgr-...
    attach | detach     SG to|from i-...|eni-...
    allow | deny        ACL NUMBER [ingress|egress] PROTOCOL [PORTS] from|to CIDR
    delete              ACL NUMBER ingress|egress

SOURCE is a group, a CIDR, a prefix list or `self`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

from cluster.rules import (
    ACL_DEFAULT_NUMBER,
    Network,
    NetworkAclEntry,
    SecurityGroupRule,
    SourceKind,
    protocol_name,
)

EXAMPLE = "fullmesh audit --what-if 'revoke sg-0123abcd tcp 29500 from self'"
ICMP = ("icmp", "icmpv6")
_WAYS = {"ingress": "from", "egress": "to"}


class ChangeError(ValueError):
    """A change cannot be: it cannot be read, or EC2 would refuse it."""


@dataclass(frozen=True)
class RuleChange:
    """A rule more, or a rule less."""

    authorize: bool
    rule: SecurityGroupRule


@dataclass(frozen=True)
class RuleById:
    """A rule less, by its own id."""

    group_id: str
    rule_id: str


@dataclass(frozen=True)
class GroupChange:
    """A group more or less on one interface. target: eni-..., or i-... for its primary interface."""

    attach: bool
    group_id: str
    target: str


@dataclass(frozen=True)
class AclChange:
    """An entry of a network ACL more, or (entry None) one less."""

    acl_id: str
    number: int
    egress: bool
    entry: Optional[NetworkAclEntry] = None


Change = Union[RuleChange, RuleById, GroupChange, AclChange]


class _Traffic(NamedTuple):
    egress: bool
    protocol: str
    first: Optional[int]
    last: Optional[int]
    far: str


def parse_change(text: str) -> Change:
    """Read one change.

    Raises:
        ChangeError: says what was received and what is allowed.
    """
    words = text.split()
    verb = words[0].lower() if words else ""
    readers = {
        "revoke": _rule,
        "authorize": _rule,
        "attach": _group,
        "detach": _group,
        "allow": _acl,
        "deny": _acl,
        "delete": _acl_entry,
    }
    if verb not in readers:
        raise ChangeError(
            f"{text!r} does not begin with a change; allowed are {', '.join(readers)}; for example: {EXAMPLE}"
        )
    try:
        return readers[verb](verb, words[1:])
    except ChangeError as error:
        raise ChangeError(f"{text!r}: {error}") from None


def _rule(verb: str, words: Sequence[str]) -> Change:
    group_id = _id(words, "sg-", "a security group")
    if verb == "revoke" and len(words) == 2 and words[1].startswith("sgr-"):
        return RuleById(group_id=group_id, rule_id=words[1])
    traffic = _traffic(words[1:])
    far = group_id if traffic.far == "self" else traffic.far
    network: Optional[Network] = None
    if re.fullmatch("sg-[0-9A-Za-z-]+", far):
        kind = SourceKind.GROUP
    elif re.fullmatch("pl-[0-9A-Za-z-]+", far):
        kind = SourceKind.PREFIX_LIST
    else:
        kind, network = SourceKind.CIDR, _network(far, "a group (sg-...), a prefix list (pl-...), self or ")
    rule = SecurityGroupRule(
        group_id=group_id,
        egress=traffic.egress,
        protocol=traffic.protocol,
        first=traffic.first,
        last=traffic.last,
        kind=kind,
        source=far if network is None else str(network),
        network=network,
    )
    return RuleChange(authorize=verb == "authorize", rule=rule)


def _group(verb: str, words: Sequence[str]) -> Change:
    group_id = _id(words, "sg-", "a security group")
    between = "to" if verb == "attach" else "from"
    if len(words) != 3 or words[1] != between or not words[2].startswith(("i-", "eni-")):
        raise ChangeError(f"{verb} takes: {verb} SG {between} i-...|eni-..., got {' '.join(words)!r}")
    return GroupChange(attach=verb == "attach", group_id=group_id, target=words[2])


def _acl(verb: str, words: Sequence[str]) -> Change:
    acl_id, number = _id(words, "acl-", "a network ACL"), _number(words[1:])
    traffic = _traffic(words[2:])
    entry = NetworkAclEntry(
        number=number,
        egress=traffic.egress,
        allow=verb == "allow",
        protocol=traffic.protocol,
        network=_network(traffic.far, "an ACL's entry names "),
        first=traffic.first,
        last=traffic.last,
    )
    return AclChange(acl_id=acl_id, number=number, egress=traffic.egress, entry=entry)


def _acl_entry(verb: str, words: Sequence[str]) -> Change:
    acl_id, number = _id(words, "acl-", "a network ACL"), _number(words[1:])
    if len(words) != 3 or words[2] not in _WAYS:
        raise ChangeError(f"{verb} takes: {verb} ACL NUMBER ingress|egress, got {' '.join(words)!r}")
    return AclChange(acl_id=acl_id, number=number, egress=words[2] == "egress")


def _id(words: Sequence[str], prefix: str, kind: str) -> str:
    found = words[0] if words else ""
    if not re.fullmatch(f"{prefix}[0-9A-Za-z-]+", found):
        raise ChangeError(f"expected {kind} ({prefix}...), got {found or 'nothing'!r}")
    return found


def _number(words: Sequence[str]) -> int:
    found = words[0] if words else ""
    if not (found.isascii() and found.isdigit() and 1 <= int(found) < ACL_DEFAULT_NUMBER):
        allowed = f"a rule number from 1 to {ACL_DEFAULT_NUMBER - 1}"
        raise ChangeError(f"expected {allowed}, got {found or 'nothing'!r}")
    return int(found)


def _traffic(words: Sequence[str]) -> _Traffic:
    """[ingress|egress] PROTOCOL [PORTS] from|to FAR."""
    rest: List[str] = list(words)
    way = rest.pop(0) if rest and rest[0] in _WAYS else ""
    if len(rest) < 3 or rest[-2] not in _WAYS.values():
        shape = "[ingress|egress] PROTOCOL [PORTS] from|to SOURCE"
        raise ChangeError(f"expected {shape}, got {' '.join(words) or 'nothing'!r}")
    between, far = rest[-2:]
    if way and _WAYS[way] != between:
        raise ChangeError(f"{way} goes with {_WAYS[way]!r}, got {between!r}")
    protocol, first, last = _protocol_and_ports(rest[:-2])
    return _Traffic(egress=between == "to", protocol=protocol, first=first, last=last, far=far)


def _protocol_and_ports(words: Sequence[str]) -> Tuple[str, Optional[int], Optional[int]]:
    protocol, ports = protocol_name(words[0]), list(words[1:])
    known = protocol in ("-1", "tcp", "udp", *ICMP)
    if not known and not (protocol.isascii() and protocol.isdigit() and int(protocol) <= 255):
        raise ChangeError(f"expected a protocol (tcp, udp, icmp, icmpv6, all, 0-255), got {words[0]!r}")
    if len(ports) > 1:
        raise ChangeError(f"expected one range of ports, got {' '.join(ports)!r}")
    text = ports[0] if ports else ""
    if protocol in ("tcp", "udp"):
        return (protocol, *_ports(text))
    if protocol in ICMP:
        return (protocol, *_icmp(text))
    if text not in ("", "all"):
        raise ChangeError(f"protocol {words[0]} has no ports, got {text!r}")
    return protocol, None, None


def _ports(text: str) -> Tuple[int, int]:
    found = re.fullmatch("([0-9]{1,5})(?:-([0-9]{1,5}))?", "0-65535" if text == "all" else text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if not first <= last <= 65535:
        allowed = "PORT, FIRST-LAST within 0-65535, or all"
        raise ChangeError(f"expected ports as {allowed}, got {text or 'nothing'!r}")
    return first, last


def _icmp(text: str) -> Tuple[int, int]:
    if text in ("", "all"):
        return -1, -1
    found = re.fullmatch("([0-9]{1,3})(?::([0-9]{1,3}))?", text)
    if not found or max(int(found[1]), int(found[2] or 0)) > 255:
        raise ChangeError(f"expected an icmp TYPE, TYPE:CODE or all, got {text!r}")
    return int(found[1]), int(found[2]) if found[2] else -1


def _network(text: str, others: str) -> Network:
    try:
        network = ipaddress.ip_network(text, strict=False)  # EC2 drops an address's own bits, too
    except ValueError:
        raise ChangeError(f"expected {others}a CIDR such as 10.0.0.0/16, got {text!r}") from None
    if "/" not in text:
        raise ChangeError(f"expected a CIDR, got {text!r}; one address is {network}")
    return network
