"""Faults of hosts and of what lies between them, and how a job is started wrongly."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.fault_scene import Injection, Scene
from lab.state import LabState

MASTER_PORT = 29500


@dataclass(frozen=True)
class OnNode:
    """A script run on one node as its root, and the one that undoes it."""

    rank: int
    script: str
    undo: str

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        values = addresses(scene.lab)
        try:
            scene.on_node(self.rank, filled(self.script, values))
            yield
        finally:
            scene.on_node(self.rank, filled(self.undo, values))


@dataclass(frozen=True)
class HostName:
    """One node has another host name, also a blank one."""

    rank: int
    name: str

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        try:
            scene.set_host_name(self.rank, self.name)
            yield
        finally:
            scene.set_host_name(self.rank, scene.lab.node(self.rank).name)


@dataclass(frozen=True)
class Between:
    """New TCP connections of these ordered pairs vanish between the nodes, where no rule shows it.

    port: only those to this port; 0 = to any.
    """

    pairs: tuple[tuple[int, int], ...]
    port: int = 0

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        rules = "\n".join(
            f"ip saddr {scene.lab.node(source).address} ip daddr {scene.lab.node(target).address} "
            f"{f'tcp dport {self.port} ' if self.port else ''}tcp flags & (syn | ack) == syn drop"
            for source, target in self.pairs
        )
        chain = f"chain between {{\ntype filter hook forward priority -10;\n{rules}\n}}"
        try:
            scene.on_network(["nft", "-f", "-"], f"table ip fault {{\n{chain}\n}}\n")
            yield
        finally:
            scene.on_network(["nft", "-f", "-"], "table ip fault\ndelete table ip fault\n")


@dataclass(frozen=True)
class Together:
    """Several at once, undone in the opposite order."""

    parts: tuple[Injection, ...]

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.inject(scene))
            yield


@dataclass(frozen=True)
class Launch:
    """A job started by a launcher that gives some nodes wrong variables.

    changes: rank of the node -> variable -> value, None = not set; `{address1}` is the address of
    rank 1. absent: nodes that nobody starts. clocks: rank -> how far ahead the job's clock is there.
    shells: rank -> what the shell that starts the job there does first.
    """

    changes: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    absent: frozenset[int] = frozenset()
    clocks: Mapping[int, float] = field(default_factory=dict)
    shells: Mapping[int, str] = field(default_factory=dict)

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        """The check is started wrongly; this only makes sure that clocks can be."""
        for rank, ahead_s in self.clocks.items():
            given = " ".join(f"{name}={value}" for name, value in _other_clock(ahead_s).items())
            scene.on_node(rank, f"off=$(($({given} date +%s) - $(date +%s))); (( off * off > 1 )) || exit 1")
        yield

    def environments(self, lab: LabState) -> list[dict[str, str] | None]:
        """The variables of each node, by rank; None = it is not started."""
        values = addresses(lab)
        found: list[dict[str, str] | None] = []
        for node in lab.nodes:
            right = {
                "RANK": str(node.rank),
                "WORLD_SIZE": str(len(lab.nodes)),
                "MASTER_ADDR": lab.node(0).address,
                "MASTER_PORT": str(MASTER_PORT),
            }
            clock = _other_clock(self.clocks[node.rank]) if node.rank in self.clocks else {}
            given = {**right, **clock, **self.changes.get(node.rank, {})}
            variables = {name: filled(value, values) for name, value in given.items() if value is not None}
            found.append(None if node.rank in self.absent else variables)
        return found


def launch_of(injection: Injection) -> Launch | None:
    """The launch among the parts of an injection; None where a check is started as deployed."""
    if isinstance(injection, Together):
        return next((found for part in injection.parts if (found := launch_of(part)) is not None), None)
    return injection if isinstance(injection, Launch) else None


def _other_clock(ahead_s: float) -> dict[str, str]:
    """Variables that give a process another wall clock: time namespaces do not shift it."""
    spec = importlib.util.find_spec("libfaketime")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    library = folder / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return {
        "LD_PRELOAD": str(library),  # a node sees this environment where the host has it
        "FAKETIME": f"{ahead_s:+g}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def everywhere(**variables: str | None) -> Launch:
    """A job whose launcher gives each of four nodes the same wrong variables."""
    return Launch(changes=dict.fromkeys(range(4), variables))


def addresses(lab: LabState) -> dict[str, str]:
    """`address0`, ... of all nodes, and `network0`, ...: their first three numbers."""
    networks = {f"network{node.rank}": node.address.rpartition(".")[0] for node in lab.nodes}
    return {**networks, **{f"address{node.rank}": node.address for node in lab.nodes}}


def filled(text: str, values: Mapping[str, str]) -> str:
    """`{address0}` and its like replaced; other braces stay, for they are nft's and the shell's."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text
