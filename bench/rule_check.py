"""Does the kernel do what the engine says? One world at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bench.rule_kernel import PATIENCE_S, Kernel, ports
from bench.rule_world import NODES, SOURCE_PORTS, Flow, RuleWorld, instance_id
from cluster.flows import reachability
from cluster.lookup import Lookup
from cluster.ports import PortRange, PortSet
from lab.firewall import compile_ruleset

MEMBERS = tuple(map(instance_id, NODES))

End = tuple[str, str, int]  # source address, target address, destination port


@dataclass(frozen=True)
class Said:
    """What the engine says of a world's flows.

    passing: those that pass from their own source port. blocked: what fails for some port of
    SOURCE_PORTS, and so counts as blocked.
    """

    passing: frozenset[Flow]
    blocked: frozenset[End]


@dataclass(frozen=True)
class Check:
    """How many connections were tried, how many of them passed, and where the two disagree, in words."""

    tried: int
    passed: int
    disagreements: tuple[str, ...]


def compiled(world: RuleWorld) -> str:
    """The world's ruleset as the lab would load it."""
    return compile_ruleset(world.snapshot(), ports(), world.prefix_lists())


def ask_engine(world: RuleWorld) -> Said:
    """Judge the world once for each source port alone and once for all of them.

    Raises:
        ValueError: the engine calls something unknown, though all was read.
    """
    lookup = Lookup(world.snapshot())
    need = PortSet.of(PortRange(flow.port, flow.port) for flow in world.flows)

    def blocked(source_ports: PortRange) -> Callable[[Flow], bool]:
        reach = reachability(lookup, MEMBERS, need, PortSet((source_ports,)))
        if reach.gaps:
            raise ValueError(f"all was read, and yet it is unknown that {reach.gaps[0]}")
        return lambda flow: (
            flow.port in reach.between(instance_id(flow.source), instance_id(flow.target)).blocked
        )

    alone = {port: blocked(PortRange(port, port)) for port in {flow.source_port for flow in world.flows}}
    together = blocked(SOURCE_PORTS)
    return Said(
        passing=frozenset(flow for flow in world.flows if not alone[flow.source_port](flow)),
        blocked=frozenset(_end(flow) for flow in world.flows if together(flow)),
    )


def disagreements(world: RuleWorld, said: Said, connected: Collection[Flow]) -> tuple[str, ...]:
    """Where the engine's answer is not what the kernel did, in words."""
    found = [
        f"{flow}: the kernel {'lets it through' if flow in connected else 'stops it'}"
        for flow in world.flows
        if (flow in connected) is not (flow in said.passing)
    ]
    failing = {_end(flow) for flow in world.flows if flow not in connected}
    return (
        *found,
        *(
            f"{source} to {target}:{port}: from every source port it is by the rules "
            f"{'blocked' if (source, target, port) in said.blocked else 'open'}, and not so in the kernel"
            for source, target, port in sorted(failing ^ said.blocked)
        ),
    )


def check(
    world: RuleWorld,
    kernel: Kernel,
    compile_world: Callable[[RuleWorld], str] = compiled,
    patience_s: float = PATIENCE_S,
) -> Check:
    """Try every flow of the world and hold the engine's answers against what the kernel did."""
    said = ask_engine(world)
    connected = kernel.connected(compile_world(world), world.flows, said.passing, patience_s)
    return Check(
        tried=len(world.flows),
        passed=len(connected),
        disagreements=disagreements(world, said, connected),
    )


def _end(flow: Flow) -> End:
    return flow.source, flow.target, flow.port
