"""What the members' own firewalls say about a flow between them."""

from __future__ import annotations

import errno
from typing import Dict, Iterable, Optional, Set, Tuple

from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange
from diagnosis.firewall.evaluate import HostFirewall
from diagnosis.firewall.parse import parse
from diagnosis.firewall.ruleset import Decision, Does, Hook, Packet, Stop
from diagnosis.matrix import Flow, listeners, stopped_at_home
from diagnosis.membership import Member, Roster

Ends = Tuple[Tuple[int, Optional[Decision]], Tuple[int, Optional[Decision]]]
"""(member, what its firewall does) of the destination and of the source."""


class HostFirewalls:
    """The rulesets of all members; one that could not be read stays unknown."""

    def __init__(self, roster: Roster) -> None:
        self._members = roster.members
        self._parsed = [_read(member) for member in roster.members]
        self._decisions: Dict[Flow, Ends] = {}
        self._redirects: Dict[Tuple[int, Hook, int], Tuple[str, ...]] = {}
        self._partial = [_partial(member) for member in roster.members]
        self._at_home = {
            (place, item.port): Does.DROP if item.errno == errno.ETIMEDOUT else Does.REJECT
            for place, member in enumerate(roster.members)
            for item in listeners(member)
            if stopped_at_home(item)
        }

    def unread(self, places: Iterable[int]) -> Tuple[Member, ...]:
        """Members whose ruleset nobody could read."""
        return tuple(
            self._members[place]
            for place in sorted(set(places))
            if self._parsed[place] is None or self._partial[place]
        )

    def stops(self, flow: Flow, *kinds: Does) -> Optional[Tuple[int, Tuple[Stop, ...]]]:
        """(member, rules) of a host that certainly stops the flow in one of these ways."""
        for place, decision in self._both(flow):
            if decision is not None and decision.possible and decision.possible <= set(kinds):
                return place, decision.stops
        return None

    def to_itself(self, place: int, port: int) -> Optional[Decision]:
        """What a host does with a connection to its own address, which goes over loopback."""
        firewall, own = self._parsed[place], self._members[place].address
        if firewall is None:
            return None
        ephemeral = _ephemeral(self._members[place])
        there = Packet(source=own, destination=own, port=port, source_port=ephemeral, interface="lo")
        back = Packet(
            source=own, destination=own, port=ephemeral, source_port=port, interface="lo", new=False
        )
        decision = firewall.decide(Hook.OUTPUT, there).then(firewall.decide(Hook.INPUT, there))
        returned = firewall.decide(Hook.OUTPUT, back).then(firewall.decide(Hook.INPUT, back))
        return decision.then(returned.silent())

    def stops_itself(self, place: int, flows: Iterable[Flow]) -> bool:
        """Whether the host does not even reach its own listeners that these flows are for."""
        return any((place, flow.port) in self._at_home for flow in flows if flow.destination == place)

    def stops_own(self, place: int) -> bool:
        """Whether the host does not reach one of its own listeners."""
        return any(own == place for own, _ in self._at_home)

    def suspects(self, flow: Flow, *kinds: Does) -> Set[int]:
        """Members whose firewall may stop the flow in one of these ways: unread, or a rule that may fit."""
        return {
            place
            for place, decision in self._both(flow)
            if decision is None or (decision.possible & set(kinds))
        }

    def rules(self, flow: Flow, place: int) -> Tuple[Stop, ...]:
        """The rules of one end that may stop the flow."""
        return next((d.stops for p, d in self._both(flow) if p == place and d is not None), ())

    def redirects(self, flow: Flow) -> Optional[Tuple[int, str]]:
        """(member, rule) of the end whose ruleset sends the flow's connections elsewhere.

        Asked once a host and port: such rules name ports, hardly ever sources.
        """
        for place, hook in ((flow.destination, Hook.INPUT), (flow.source, Hook.OUTPUT)):
            key = (place, hook, flow.port)
            if key not in self._redirects:
                firewall = self._parsed[place]
                there, _ = self._packets(flow, place)
                self._redirects[key] = firewall.redirects(hook, there) if firewall is not None else ()
            if self._redirects[key]:
                return place, self._redirects[key][0]
        return None

    def clear(self, flow: Flow) -> bool:
        """Whether both ends were read and certainly let the flow pass."""
        return all(decision is not None and decision.surely(Does.ACCEPT) for _, decision in self._both(flow))

    def _both(self, flow: Flow) -> Ends:
        known = self._decisions.get(flow)
        if known is None:
            into = (flow.destination, self._decide(flow, flow.destination, Hook.INPUT))
            known = (into, (flow.source, self._decide(flow, flow.source, Hook.OUTPUT)))
            self._decisions[flow] = known
        return known

    def _decide(self, flow: Flow, place: int, hook: Hook) -> Optional[Decision]:
        decision = self._by_ruleset(flow, place, hook)
        at_home = self._at_home.get((place, flow.port)) if hook is Hook.INPUT else None
        if at_home is None or (decision is not None and len(decision.possible) == 1):
            return decision
        # Not read, or not certain; but what stops a host on its own loopback is its firewall.
        return Decision(possible=frozenset({at_home}), stops=decision.stops if decision is not None else ())

    def _by_ruleset(self, flow: Flow, place: int, hook: Hook) -> Optional[Decision]:
        """What one end does with the flow's first packet (its reply goes the other way)."""
        firewall = self._parsed[place]
        if firewall is None:
            return None
        there, back = self._packets(flow, place)
        returns = Hook.OUTPUT if hook is Hook.INPUT else Hook.INPUT
        decision = firewall.decide(hook, there).then(firewall.decide(returns, back).silent())
        if self._partial[place] and decision.surely(Does.ACCEPT):
            return None  # the rules that were not read may say otherwise
        return decision

    def _packets(self, flow: Flow, place: int) -> Tuple[Packet, Packet]:
        """The flow's first packet and its reply, as one end sees them."""
        source, destination = self._members[flow.source], self._members[flow.destination]
        report = self._members[place].report
        interface = report.host.interface if report and report.host else None
        ephemeral = _ephemeral(source)
        there = Packet(
            source=source.address,
            destination=destination.address,
            port=flow.port,
            source_port=ephemeral,
            interface=interface,
        )
        back = Packet(
            source=destination.address,
            destination=source.address,
            port=ephemeral,
            source_port=flow.port,
            interface=interface,
            new=False,
        )
        return there, back


def _ephemeral(member: Member) -> PortRange:
    """Where the member's own connections come from."""
    host = member.report.host if member.report else None
    return (host.local_port_range if host else None) or DEFAULT_EPHEMERAL_PORTS


def _read(member: Member) -> Optional[HostFirewall]:
    """None where the ruleset was not read, or is in a form that is not understood."""
    host = member.report.host if member.report else None
    if host is None or host.firewall_rules is None:
        return None
    return parse(host.firewall_rules)


def _partial(member: Member) -> bool:
    host = member.report.host if member.report else None
    return host is not None and host.firewall_error is not None
