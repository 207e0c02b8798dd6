"""Members that are known by a host's name and were not met: they are tried where their ports usually are.

A host file or Slurm tells who should be there. When the meeting place is what does not work,
the others listen all the same; and every member opens the same ports of the same range unless
somebody holds one. What is found this way speaks for one direction, so it is judged from the
rows of both ends (`check --merge`).
"""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Sequence, Tuple

from diagnosis.report import ConnectOutcome, PairProbe
from probe.members import Member
from probe.mesh import Mesh
from probe.place import Place
from probe.plan import plan_probes, spread_ports
from probe.preflight import resolve
from probe.rows import Say

Probes = Tuple[PairProbe, ...]
_PAUSE_S = 1.0
_UNMET = "rank-"  # and the rank: the id of one who never registered


def known_members(place: Place, met: Sequence[Member]) -> Tuple[Member, ...]:
    """The known hosts' members that are not among those who were met, at the ports they should have.

    A host whose name does not resolve is left out: it cannot be tried.
    """
    taken = {member.address for member in met} | {place.address}
    found: List[Member] = []
    for rank, host in sorted(place.known.items()):
        if rank == place.rank:
            continue
        addresses, _ = resolve(host)
        address = next(iter(addresses or ()), None)
        if address is None or address in taken:
            continue
        taken.add(address)
        found.append(
            Member(
                member_id=f"{_UNMET}{rank}",
                address=address,
                master_port=place.master_port or 0 if place.listens_on_master else 0,
                ports=spread_ports(place.ephemeral_ports),
            )
        )
    return tuple(found)


def probe_with_unmet(mesh: Mesh, own_id: str, met: Sequence[Member], unmet: Sequence[Member]) -> Probes:
    """Probes to all, without those to hosts that refused every port: there nobody listens yet."""
    probes = mesh.probe(plan_probes(own_id, (*met, *unmet)))
    silent = {member.member_id for member in unmet} - _present(probes)
    return tuple(probe for probe in probes if probe.destination not in silent)


def look_for_known(
    mesh: Mesh, place: Place, say: Say, give_up_at: float, stay_s: float
) -> Tuple[Dict[str, str], Optional[Probes]]:
    """What a node sees without a place to meet: (member id -> address, probes); None: nobody is known.

    Blocks until they have shown themselves or the time (monotonic) is up, and then for `stay_s`,
    so that those who try this node find it.
    """
    own = mesh.member(place.member_id)
    unmet = known_members(place, (own,))
    if not unmet:
        return {}, None
    say(f"the meeting place cannot be used; trying {len(unmet)} known hosts where they should listen")
    probes = _await(mesh, own, unmet, give_up_at)
    say(f"listening for another {stay_s:.0f} s, for those who try this node")
    time.sleep(stay_s)
    return addresses_of((own, *unmet), probes), probes


def _await(mesh: Mesh, own: Member, unmet: Sequence[Member], give_up_at: float) -> Probes:
    """Try until every one of them has shown itself; the last try counts."""
    while True:
        started = time.monotonic()
        probes = probe_with_unmet(mesh, own.member_id, (own,), unmet)
        there = {probe.destination for probe in probes if probe.outcome is ConnectOutcome.CONNECTED}
        if len(there) == len(unmet) or time.monotonic() >= give_up_at:
            return probes
        time.sleep(max(0.0, started + _PAUSE_S - time.monotonic()))


def addresses_of(members: Sequence[Member], probes: Probes) -> Dict[str, str]:
    """Member id -> address; a known host where nobody listens is no member."""
    tried = {probe.destination for probe in probes}
    return {
        member.member_id: member.address
        for member in members
        if member.member_id in tried or not member.member_id.startswith(_UNMET)
    }


def _present(probes: Probes) -> set[str]:
    """Those whose host did not refuse every port, so that a member may be there."""
    return {probe.destination for probe in probes if probe.outcome is not ConnectOutcome.REFUSED}
