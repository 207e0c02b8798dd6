"""A host's firewall rules as data, whatever tool printed them, and what can become of a packet.

`host_firewall_parse.parse` makes them from text, `host_firewall.HostFirewall` evaluates them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, FrozenSet, Optional, Tuple, Union

from cluster.ports import ALL_PORTS, PortRange


class Hook(str, Enum):
    INPUT = "input"
    OUTPUT = "output"


class Does(str, Enum):
    """What can become of a packet. FALL: the chain ends without a verdict."""

    ACCEPT = "accept"
    DROP = "drop"
    REJECT = "reject"
    FALL = "fall"


class Tool(str, Enum):
    """What changes a table's rules; ip6tables where the table's family is ip6."""

    NFT = "nft"
    IPTABLES = "iptables"
    IPTABLES_LEGACY = "iptables-legacy"


class Manager(str, Enum):
    """A program that made the rules and makes them again: it has to be told, not its tables."""

    UFW = "ufw"
    FIREWALLD = "firewalld"


Ports = Union[int, PortRange]
"""A port, or the range that an unknown one comes from."""


@dataclass(frozen=True)
class Packet:
    """A packet of a TCP connection as the host sees it: the first one, or (new=False) the first reply."""

    source: str
    destination: str
    port: Ports
    interface: Optional[str] = None
    source_port: Ports = ALL_PORTS
    new: bool = True


@dataclass(frozen=True)
class Match:
    """One condition. field: iif, oif, state, saddr, daddr, sport, dport, proto, family, or "unknown"."""

    field: str
    values: Tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True)
class Rule:
    """Conditions and a verdict; target: the chain of a jump or goto; handle: nft's, where it was listed."""

    text: str
    matches: Tuple[Match, ...]
    verdict: str  # accept, drop, reject, jump, goto, return, redirect, any (a verdict map), none
    target: str = ""
    handle: Optional[int] = None


@dataclass(frozen=True)
class Chain:
    """hook: None = reached by jumps only. policy: of a base chain."""

    name: str
    hook: Optional[Hook]
    policy: Does
    rules: Tuple[Rule, ...]


@dataclass(frozen=True)
class Table:
    family: str
    chains: Dict[str, Chain]
    sets: Dict[str, Tuple[str, ...]] = field(default_factory=dict)
    name: str = ""
    tool: Tool = Tool.NFT

    def manager(self, chain: str, *, by_policy: bool) -> Optional[Manager]:
        """Who has to be told to let somebody through this chain (or, by_policy, past its end)."""
        if (self.tool is Tool.NFT and self.name == "firewalld") or "INPUT_ZONES" in self.chains:
            return Manager.FIREWALLD
        own = [name for name in self.chains if name.startswith(("ufw-", "ufw6-"))]
        return Manager.UFW if chain in own or (own and by_policy) else None


@dataclass(frozen=True)
class Stop:
    """A rule, or a chain's policy, that stops a packet.

    number: the rule's place in its chain, from 1; 0 = the policy.
    """

    table: Table
    chain: str
    hook: Hook
    text: str
    number: int = 0
    handle: Optional[int] = None

    @property
    def manager(self) -> Optional[Manager]:
        return self.table.manager(self.chain, by_policy=self.number == 0)

    def __str__(self) -> str:
        """As evidence: the rule, and where it stands."""
        by_nft = self.table.tool is Tool.NFT
        place = [f"table {self.table.family} {self.table.name}" if by_nft else f"table {self.table.name}"]
        place.append(f"chain {self.chain}")
        if by_nft and self.handle is not None:
            place.append(f"handle {self.handle}")
        elif self.number:
            place.append(f"rule {self.number}")
        return f"{self.text} ({', '.join(place)})"


@dataclass(frozen=True)
class Decision:
    """possible: every verdict the packet can meet; stops: the rules or policies that stop it."""

    possible: FrozenSet[Does]
    stops: Tuple[Stop, ...] = ()

    def surely(self, what: Does) -> bool:
        return self.possible == {what}

    def then(self, later: Decision) -> Decision:
        """This decision, and another one where the packet is let through."""
        if Does.ACCEPT not in self.possible:
            return self
        possible = (self.possible - {Does.ACCEPT}) | later.possible
        return Decision(possible=possible, stops=unique((*self.stops, *later.stops)))

    def silent(self) -> Decision:
        """As the far end sees it: whatever stops a reply, the connection just does not come about."""
        return Decision(
            possible=frozenset(Does.DROP if does is Does.REJECT else does for does in self.possible),
            stops=self.stops,
        )


def unique(stops: Tuple[Stop, ...]) -> Tuple[Stop, ...]:
    """Each stop once, in order (tables hold dictionaries, which have no hash)."""
    found: Dict[Tuple[int, str, int, Hook], Stop] = {}
    for stop in stops:
        found.setdefault((id(stop.table), stop.chain, stop.number, stop.hook), stop)
    return tuple(found.values())
