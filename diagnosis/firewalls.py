"""What the members' own firewalls say about a flow between them."""

from __future__ import annotations

from typing import Dict, Iterable, Optional, Set, Tuple

from diagnosis.host_firewall import Decision, Does, Hook, HostFirewall, Packet
from diagnosis.host_firewall_parse import parse
from diagnosis.matrix import Flow
from diagnosis.membership import Member, Roster

Ends = Tuple[Tuple[int, Optional[Decision]], Tuple[int, Optional[Decision]]]
"""(member, what its firewall does) of the destination and of the source."""


class HostFirewalls:
    """The rulesets of all members; one that could not be read stays unknown."""

    def __init__(self, roster: Roster) -> None:
        self._members = roster.members
        self._parsed = [_read(member) for member in roster.members]
        self._decisions: Dict[Flow, Ends] = {}
        self._partial = [_partial(member) for member in roster.members]

    def unread(self, places: Iterable[int]) -> Tuple[Member, ...]:
        """Members whose ruleset nobody could read."""
        return tuple(
            self._members[place]
            for place in sorted(set(places))
            if self._parsed[place] is None or self._partial[place]
        )

    def stops(self, flow: Flow, *kinds: Does) -> Optional[Tuple[int, Tuple[str, ...]]]:
        """(member, rules) of a host that certainly stops the flow in one of these ways."""
        for place, decision in self._both(flow):
            if decision is not None and decision.possible and decision.possible <= set(kinds):
                return place, decision.lines
        return None

    def to_itself(self, place: int, port: int) -> Optional[Decision]:
        """What a host does with a connection to its own address, which goes over loopback."""
        firewall, own = self._parsed[place], self._members[place].address
        packet = Packet(source=own, destination=own, port=port, interface="lo")
        return None if firewall is None else firewall.decide(Hook.INPUT, packet)

    def suspects(self, flow: Flow, *kinds: Does) -> Set[int]:
        """Members whose firewall may stop the flow in one of these ways: unread, or a rule that may fit."""
        return {
            place
            for place, decision in self._both(flow)
            if decision is None or (decision.possible & set(kinds))
        }

    def lines(self, flow: Flow, place: int) -> Tuple[str, ...]:
        """The rules of one end that may stop the flow."""
        return next((d.lines for p, d in self._both(flow) if p == place and d is not None), ())

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
        firewall = self._parsed[place]
        if firewall is None:
            return None
        report = self._members[place].report
        packet = Packet(
            source=self._members[flow.source].address,
            destination=self._members[flow.destination].address,
            port=flow.port,
            interface=report.host.interface if report and report.host else None,
        )
        decision = firewall.decide(hook, packet)
        if self._partial[place] and decision.surely(Does.ACCEPT):
            return None  # the rules that were not read may say otherwise
        return decision


def _read(member: Member) -> Optional[HostFirewall]:
    """None where the ruleset was not read, or is in a form that is not understood."""
    host = member.report.host if member.report else None
    if host is None or host.firewall_rules is None:
        return None
    return parse(host.firewall_rules)


def _partial(member: Member) -> bool:
    host = member.report.host if member.report else None
    return host is not None and host.firewall_error is not None
