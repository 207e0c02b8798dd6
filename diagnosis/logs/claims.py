"""Claims about causes, and what several rules want to know of all facts together."""

from __future__ import annotations

import functools
import re
from enum import IntEnum
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from diagnosis.logs.facts import Book, Fact
from diagnosis.logs.kinds import LEAVING, LOST, Kind

# What live evidence decides: the mesh probed both ways, each pair, on every kind of port.
PROBE = (
    "RANK={rank} WORLD_SIZE={world_size} MASTER_ADDR={master_address} MASTER_PORT={master_port} "
    "fullmesh check --no-collective"
)
EVERY_LOG = "fullmesh explain LOG_OF_EACH_RANK..."

ERRNO_NAMES = {
    "97": "EAFNOSUPPORT, no such address family",
    "98": "EADDRINUSE, address already in use",
    "99": "EADDRNOTAVAIL, cannot assign requested address",
    "101": "ENETUNREACH, network is unreachable",
    "104": "ECONNRESET, reset by the peer",
    "110": "ETIMEDOUT, no answer",
    "111": "ECONNREFUSED, nothing listens",
    "113": "EHOSTUNREACH, no such host on the link, or a firewall that rejects",
}
GAI_NAMES = {
    "-1": "EAI_BADFLAGS",
    "-2": "EAI_NONAME, the name does not exist",
    "-3": "EAI_AGAIN, the resolver did not answer",
    "-4": "EAI_FAIL, the resolver failed",
    "-5": "EAI_NODATA, the name has no address",
    "-6": "EAI_FAMILY",
    "-8": "EAI_SERVICE",
    "-9": "EAI_ADDRFAMILY",
    "-11": "EAI_SYSTEM",
    "8": "EAI_NONAME of macOS, the name does not exist",
    "11001": "WSAHOST_NOT_FOUND, the name does not exist",
    "11002": "WSATRY_AGAIN, the resolver did not answer",
    "11004": "WSANO_DATA, the name has no address",
}
# Windows numbers what Linux numbers otherwise.
_WINDOWS_ERRNO = {"10051": "101", "10054": "104", "10060": "110", "10061": "111", "10065": "113"}
# At the store these say that its host cannot be reached.
UNREACHABLE = ("101", "110", "113")
# Docker's own default; other private ranges are used by networks and bridges alike.
_DOCKER = "172.17."
_EPHEMERAL = range(32768, 61000)
# The first hop of Istio's inbound traffic: whoever sees it as a peer is behind that proxy.
PROXY_ADDRESS = "127.0.0.6"


class Tier(IntEnum):
    """How near to the root a cause stands: a higher one is an echo where a lower one is certain."""

    SELF_EVIDENT = 0
    ABSENCE = 1
    ENDED = 2
    LEFT_BEHIND = 3  # what others see when a process ends
    SIDE = 4  # worth saying, decides nothing


class Claim(NamedTuple):
    """A cause with the facts that show it. sure=False: it fits, and nothing decides.

    fields: for the catalogue's command templates (never changed). ask: the command that would decide (a
    template).
    """

    id: str
    facts: Tuple[Fact, ...]
    summary: str
    subject: str = "cluster"
    sure: bool = True
    tier: Tier = Tier.SELF_EVIDENT
    fields: Mapping[str, object] = {}
    remediation: Optional[str] = None
    ask: Optional[str] = None


def suspects(
    ids: Iterable[str], facts: Iterable[Fact], summary: str, ask: Optional[str] = None
) -> List[Claim]:
    """Candidates in order, all from the same facts."""
    shown = tuple(facts)
    return [Claim(id=item, facts=shown, summary=summary, sure=False, ask=ask) for item in ids]


def apart(one: Fact, other: Fact) -> bool:
    """Whether two lines are surely of different processes."""
    if one.rank is not None and other.rank is not None:
        return one.rank != other.rank
    if one.place.file != other.place.file:
        return True
    return None not in (one.node, other.node) and one.node != other.node


def node(rank: Optional[int]) -> str:
    return "cluster" if rank is None else f"node:{rank}"


def host_of(fact: Fact) -> str:
    """Host as the message names it; blanks are part of it."""
    return fact.values.get("host") or fact.get("bare")


def errno_of(fact: Fact) -> str:
    """The error's number as Linux numbers it."""
    number = fact.get("errno")
    return _WINDOWS_ERRNO.get(number, number)


def seconds_of(text: str) -> Optional[float]:
    """Seconds of a time-out as it is printed: 900s, 60000ms or 60000 ms."""
    found = re.fullmatch(r"([0-9]{1,12}) ?(m?s)", text)
    return int(found.group(1)) / (1000 if found.group(2) == "ms" else 1) if found else None


def setting(fact: Fact) -> str:
    return fact.get("value") or fact.get("next")


def listed_ranks(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,6}", text))


def real_port(printed: str) -> str:
    """A port that Gloo printed, in words: most releases print it with its bytes swapped."""
    if not re.fullmatch(r"[0-9]{1,5}", printed) or not 0 < int(printed) < 65536:
        return "unknown"
    number = int(printed)
    swapped = (number & 0xFF) << 8 | number >> 8
    # Gloo's listeners take ports of the kernel's range: that tells releases that print it right.
    if number in _EPHEMERAL and swapped not in _EPHEMERAL:
        return printed
    return f"{swapped} (printed with its bytes swapped, {printed})"


def address(text: str) -> Optional[object]:
    """The IPv4 or IPv6 address that a text is; None where it is none."""
    from ipaddress import ip_address  # noqa: PLC0415 - start-up time: few logs need it

    try:
        return ip_address(text.split("%", maxsplit=1)[0])
    except ValueError:
        return None


def is_loopback(text: str) -> bool:
    return text.startswith("127.") or text in ("::1", "localhost", "ip6-localhost", "::ffff:127.0.0.1")


def is_tunnel(text: str) -> Optional[str]:
    """What a range is used for besides, of addresses that members often do not reach; None for others."""
    found = address(text) if text[:4] in ("100.", "198.") else None
    if found is None:
        return None
    parts = text.split(".")
    if parts[0] == "100" and 64 <= int(parts[1]) < 128:
        return "in the range that VPNs like Tailscale take (and some clusters' pods)"
    if parts[:2] in (["198", "18"], ["198", "19"]):
        return "in the range that proxies hand out as made-up addresses"
    return None


def is_unroutable(text: str) -> Optional[str]:
    """What kind of interface has an address that members of other hosts never reach; None if they may."""
    if text.startswith(_DOCKER):
        return "Docker's default bridge"
    if text.startswith("192.168.122."):
        return "libvirt's default bridge"
    if text.startswith("169.254.") or text.lower().startswith("fe80"):
        return "a link-local address"
    return None


def numeric_name(text: str) -> Optional[int]:
    """The number that is a host's name: written out, or behind 0.x.x.x, as which the resolver reads it."""
    if re.fullmatch(r"[0-9]{1,10}", text):
        return int(text) or None
    parts = text.rpartition("::ffff:")[2].split(".")
    if len(parts) != 4 or parts[0] != "0" or address(".".join(parts)) is None:
        return None
    return (int(parts[1]) << 16 | int(parts[2]) << 8 | int(parts[3])) or None


class View:
    """The book, and what follows from all of it."""

    def __init__(self, book: Book) -> None:
        self.book = book

    @functools.cached_property
    def world_size(self) -> Optional[int]:
        sizes = {
            fact.number("size") for fact in self.book.all(Kind.STORE_JOINED, Kind.STORE_BARRIER, Kind.MEMBER)
        } | {fact.number("value") for fact in self.book.settings("WORLD_SIZE")}
        known = {size for size in sizes if size}
        return next(iter(known)) if len(known) == 1 else None

    @functools.cached_property
    def master(self) -> Tuple[Optional[str], Optional[str]]:
        """(host, port) of the store, as far as the logs show them."""
        for fact in self.book.all(Kind.STORE_TIMEOUT, Kind.STORE_ERRNO, Kind.STORE_GAI):
            if host_of(fact).strip():
                return host_of(fact).strip(), fact.get("port") or None
        for fact in self.book.settings("MASTER_ADDR"):
            if setting(fact):
                ports = [setting(port) for port in self.book.settings("MASTER_PORT") if setting(port)]
                return setting(fact), ports[0] if ports else None
        for fact in self.book.settings("rdzv_endpoint"):
            host, _, port = setting(fact).partition(":")
            return host or None, port or None
        return None, None

    @functools.cached_property
    def ranks(self) -> Set[int]:
        """Ranks that printed something."""
        return {fact.rank for facts in self.book.facts.values() for fact in facts if fact.rank is not None}

    @functools.cached_property
    def several_hosts(self) -> bool:
        """Whether anything shows that the job ran on more than one host."""
        book = self.book
        counts = [setting(fact).split(":")[-1] for fact in book.settings("nnodes")]
        if any(re.fullmatch(r"[0-9]{1,6}", count) and int(count) > 1 for count in counts):
            return True
        remote = {fact.get("ip") for fact in book.all(Kind.PAIR_ERROR, Kind.PEER_CLOSED, Kind.PEER_RESET)}
        master = self.master[0]
        return (
            len(book.nodes) > 1
            # Ray, and pdsh under DeepSpeed, name a host by its address only where it is another one.
            or any(re.fullmatch(r"[0-9.]{7,15}", name) for name in book.nodes)
            or any(rank >= 8 for rank in self.ranks)
            or any(ip and not is_loopback(ip) for ip in remote)
            or (master is not None and not is_loopback(master))
        )

    @functools.cached_property
    def mesh_begun(self) -> Tuple[Fact, ...]:
        """Facts that only a rank which reached the store can print."""
        return tuple(
            self.book.all(
                Kind.PAIR_ERROR,
                Kind.PAIR_HIDDEN,
                Kind.PAIR_TIMEOUT,
                Kind.OPERATION_TIMEOUT,
                Kind.PEER_CLOSED,
                Kind.SIZE_MISMATCH,
                Kind.STORE_KEY,
            )
        )

    def overcome(self, facts: List[Fact]) -> Optional[Fact]:
        """The line that shows that whoever printed these facts went on, if nobody was lost."""
        if self.book.some(LOST) or not facts:
            return None
        again = self.book.progress_after(facts)
        ranks = {fact.rank for fact in facts}
        same = again is not None and (again.rank is None or ranks <= {again.rank, None})
        return again if same else None

    @functools.cached_property
    def left_after_work(self) -> bool:
        """Whether what was lost was lost by processes that leave one after the other, their work done."""
        lost = self.book.all(*LEAVING)
        finished = self.book.finished
        raised = any(re.search(r"(?:Error|Exception)\b: ", fact.place.text) for fact in lost)
        # Between hosts only clocks could order them, within a file the lines do.
        before = finished is not None and all(
            finished.order < fact.order or finished.place.file != fact.place.file for fact in lost
        )
        return bool(lost) and before and not raised

    def fields(self) -> Dict[str, object]:
        """What the logs show of the values that commands need."""
        host, port = self.master
        return {
            "master_address": host,
            "master_port": port,
            "world_size": self.world_size,
            "nodes": self.world_size,
        }
