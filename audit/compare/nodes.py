"""What the nodes said of themselves last: the ports that Gloo's listeners come from, and who was proven."""

from __future__ import annotations

from audit.compare.scene import Scene
from audit.difference import Deviation, Meaning
from audit.documents import Json
from cluster.flows import Flow, reachability
from cluster.lookup import Lookup
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange, PortSet

PROOF = "proof"


def compare(scene: Scene, members: tuple[str, ...]) -> None:
    """members: ids of the running instances of the fleet."""
    config = scene.stack.config
    if config is None:
        scene.note("the nodes' settings cannot be compared: no function of the stack holds them")
        return
    problem = scene.documents.problem("nodes")
    if problem:
        scene.note(f"the nodes' port ranges cannot be compared: {problem}")
        return
    told = config.ephemeral_ports or DEFAULT_EPHEMERAL_PORTS
    rows = {str(entry.get("MemberId")): entry for entry in scene.documents.entries("nodes")}
    for member in members:
        actual = _port_range(rows.get(member, {}))
        if actual is not None and actual != told:
            _range(scene, members, member, told, actual)
    _proof(scene, members, rows)


def _port_range(entry: Json) -> PortRange | None:
    found = ((entry.get("Row") or {}).get("host") or {}).get("local_port_range")
    try:
        return PortRange(int(found["first"]), int(found["last"])) if isinstance(found, dict) else None
    except (KeyError, TypeError, ValueError):
        return None


def _range(scene: Scene, members: tuple[str, ...], member: str, told: PortRange, actual: PortRange) -> None:
    """Listeners come from another range: judged by the rules for exactly those ports."""
    pairs = tuple(
        (source, member, str(run))
        for source, flow in _flows_to(scene, members, member, told, actual).items()
        for run in flow.blocked
    )
    scene.add(
        Deviation(
            resource=member,
            logical_id="",
            attribute="net.ipv4.ip_local_port_range",
            expected=str(told),
            actual=str(actual),
            why="its listeners come from other ports than the rules were made for"
            + ("" if pairs else "; for now the rules let those pass, too"),
            at_least=Meaning.BREAKS_NEW_CONNECTIONS if pairs else Meaning.WEAKENS,
            pairs=pairs,
        )
    )


def _flows_to(
    scene: Scene, members: tuple[str, ...], member: str, told: PortRange, actual: PortRange
) -> dict[str, Flow]:
    reach = reachability(Lookup(scene.snapshot), members, PortSet((actual,)), PortSet((told,)))
    return {source: reach.between(source, member) for source in members if source != member}


def _proof(scene: Scene, members: tuple[str, ...], rows: dict[str, Json]) -> None:
    """A member that came after the deploy's proof, and whether a later check has proven it.

    Rows expire: where the deploy left none that still stands, nobody can tell.
    """
    if not any(entry.get("Registered") for entry in rows.values()):
        return
    for member in members:
        entry = rows.get(member, {})
        if entry.get("Registered"):
            continue
        joined = entry.get("Joined")
        scene.add(
            Deviation(
                resource=member,
                logical_id="",
                attribute=PROOF,
                expected="part of the deploy's proof",
                actual=f"proven in {joined}" if joined else "not proven yet",
                why="it came after the deploy and took another one's place; a later check has proven it"
                if joined
                else "it came after the deploy, and no check has proven it yet",
                at_least=Meaning.COSMETIC if joined else Meaning.WEAKENS,
            )
        )
