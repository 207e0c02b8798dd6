"""What a host's own firewall does with a new connection: nft and iptables rulesets, evaluated.

A rule matches for certain, not at all, or perhaps (a match that this module does not know, a
rate limit). So a decision is a set of possible verdicts: only one that is alone is certain.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from typing import FrozenSet, Iterable, List, Optional, Set, Tuple

from cluster.ports import PortRange
from diagnosis.firewall.ruleset import (
    Chain,
    Decision,
    Does,
    Hook,
    Match,
    Packet,
    Ports,
    Rule,
    Stop,
    Table,
    unique,
)


class Fit(str, Enum):
    YES = "yes"
    NO = "no"
    MAYBE = "maybe"


ACCEPTS = Decision(possible=frozenset({Does.ACCEPT}))


class HostFirewall:
    """A parsed ruleset; see `host_firewall_parse.parse`."""

    def __init__(self, tables: Tuple[Table, ...]) -> None:
        self.tables = tables

    def decide(self, hook: Hook, packet: Packet) -> Decision:
        """Every base chain of the hook has to accept; one that stops the packet stops it."""
        if not any(chain.hook is hook for table in self.tables for chain in table.chains.values()):
            return ACCEPTS
        version = ipaddress.ip_address(packet.destination).version
        possible: Set[Does] = {Does.ACCEPT}
        found: List[Stop] = []
        for table in self.tables:
            if table.family not in ("inet", "netdev", "ip" if version == 4 else "ip6"):
                continue
            for chain in table.chains.values():
                if chain.hook is not hook:
                    continue
                walk = _Walk(table, packet, hook)
                outcomes = walk.run(chain, frozenset())
                if Does.FALL in outcomes:
                    outcomes = (outcomes - {Does.FALL}) | {chain.policy}
                    if chain.policy is not Does.ACCEPT:
                        walk.stops.append(Stop(table, chain.name, hook, f"policy {chain.policy.value}"))
                stops = outcomes - {Does.ACCEPT}
                possible |= stops
                found += walk.stops
                if Does.ACCEPT not in outcomes:
                    possible.discard(Does.ACCEPT)
        return Decision(possible=frozenset(possible), stops=unique(tuple(found)))

    def redirects(self, hook: Hook, packet: Packet) -> Tuple[str, ...]:
        """Rules that may send the packet to another port or address than its own."""
        lines: List[str] = []
        for table in self.tables:
            for chain in table.chains.values():
                if chain.hook is hook:
                    walk = _Walk(table, packet, hook)
                    walk.run(chain, frozenset())
                    lines += walk.redirects
        return tuple(dict.fromkeys(lines))


class _Walk:
    """One packet's way through one base chain and the chains it jumps to."""

    def __init__(self, table: Table, packet: Packet, hook: Hook) -> None:
        self._table = table
        self._packet = packet
        self._hook = hook
        self.stops: List[Stop] = []
        self.redirects: List[str] = []

    def run(self, chain: Chain, above: FrozenSet[str]) -> Set[Does]:
        outcomes: Set[Does] = set()
        for number, rule in enumerate(chain.rules, 1):
            fit = self._fits(rule)
            if fit is Fit.NO:
                continue
            met = self._verdict(rule, above | {chain.name})
            if rule.verdict in ("drop", "reject", "any"):
                self.stops.append(Stop(self._table, chain.name, self._hook, rule.text, number, rule.handle))
            if met is None:
                continue
            outcomes |= met - {Does.FALL}
            goes_on = Does.FALL in met and rule.verdict not in ("goto", "return")
            if rule.verdict in ("goto", "return") and Does.FALL in met:
                outcomes.add(Does.FALL)
            if fit is Fit.YES and not goes_on:
                return outcomes
        outcomes.add(Does.FALL)
        return outcomes

    def _verdict(self, rule: Rule, above: FrozenSet[str]) -> Optional[Set[Does]]:
        """What the rule can do to a packet that fits; None = nothing."""
        if rule.verdict in ("jump", "goto"):
            target = self._table.chains.get(rule.target)
            if target is None or rule.target in above:
                return None
            return self.run(target, above)
        if rule.verdict == "return":
            return {Does.FALL}
        if rule.verdict == "redirect":
            self.redirects.append(rule.text)
        if rule.verdict == "any":
            return {Does.ACCEPT, Does.DROP, Does.FALL}
        return {Does(rule.verdict)} if rule.verdict in ("accept", "drop", "reject") else None

    def _fits(self, rule: Rule) -> Fit:
        worst = Fit.YES
        for match in rule.matches:
            fit = self._fit(match)
            if match.negated and fit is not Fit.MAYBE:
                fit = Fit.NO if fit is Fit.YES else Fit.YES
            if fit is Fit.NO:
                return Fit.NO
            if fit is Fit.MAYBE:
                worst = Fit.MAYBE
        return worst

    def _fit(self, match: Match) -> Fit:
        values = self._expand(match.values)
        if values is None:
            return Fit.MAYBE
        packet = self._packet
        version = ipaddress.ip_address(packet.destination).version
        listed = {value.lower() for value in values}
        if match.field in ("iif", "oif"):
            here = (match.field == "iif") == (self._hook is Hook.INPUT)
            return _any(_interface_is(packet.interface, value) for value in values) if here else Fit.NO
        by_field = {
            "state": _sure(bool(listed & ({"new", "untracked"} if packet.new else {"established"}))),
            "proto": _sure(bool(listed & {"tcp", "6", "all", "0"})),
            "family": _sure(("ipv4" if version == 4 else "ipv6") in listed),
            "dport": _any(_port_in(packet.port, value) for value in values),
            "sport": _any(_port_in(packet.source_port, value) for value in values),
            "saddr": _any(_address_in(packet.source, value) for value in values),
            "daddr": _any(_address_in(packet.destination, value) for value in values),
        }
        return by_field.get(match.field, Fit.MAYBE)

    def _expand(self, values: Tuple[str, ...]) -> Optional[Tuple[str, ...]]:
        """Named sets (`@name`) replaced by their elements; None when a set is not known."""
        found: List[str] = []
        for value in values:
            if value.startswith("@"):
                elements = self._table.sets.get(value[1:])
                if elements is None:
                    return None
                found += elements
            else:
                found.append(value)
        return tuple(found)


def _sure(fits: bool) -> Fit:
    return Fit.YES if fits else Fit.NO


def _any(fits: Iterable[Fit]) -> Fit:
    seen = set(fits)
    if Fit.YES in seen:
        return Fit.YES
    return Fit.MAYBE if Fit.MAYBE in seen else Fit.NO


def _port_in(port: Ports, value: str) -> Fit:
    first, _, last = value.replace(":", "-").partition("-")
    if not first.isdigit() or (last and not last.isdigit()):
        return Fit.MAYBE  # a service's name, or an expression
    ports = PortRange(port, port) if isinstance(port, int) else port
    low, high = int(first), int(last or first)
    if high < ports.first or ports.last < low:
        return Fit.NO
    return Fit.YES if low <= ports.first and ports.last <= high else Fit.MAYBE


def _address_in(address: str, value: str) -> Fit:
    try:
        own = ipaddress.ip_address(address)
        first, dash, last = value.partition("-")
        if dash:
            low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
            inside = low.version == own.version and int(low) <= int(own) <= int(high)
        else:
            network = ipaddress.ip_network(value, strict=False)
            inside = network.version == own.version and own in network
    except ValueError:
        return Fit.MAYBE
    return _sure(inside)


def _interface_is(interface: Optional[str], value: str) -> Fit:
    name = value.strip('"')
    if name == "lo":  # members are reached over loopback only by themselves
        return _sure(interface == "lo")
    if interface is None:
        return Fit.MAYBE
    wild = name.endswith(("*", "+"))
    same = interface.startswith(name[:-1]) if wild else interface == name
    return _sure(same)
