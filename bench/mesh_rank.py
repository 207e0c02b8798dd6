"""The mesh stage of one node, run inside a node: the probe's own listeners, plan and probes.

Speaks lines of JSON with `bench.nodes`: its registration once the listeners are proven, then
waits for all registrations and the moment to start (the barrier), answers with its NodeReport,
and keeps the listeners open until its input closes. Standard library and probe/ only, so that
its peak memory is that of a node's mesh stage.
"""

from __future__ import annotations

import json
import sys
import time

from cluster.ports import PortRange
from cluster.serial import encode
from diagnosis.report import NodeReport
from probe.members import parse_registration
from probe.mesh import Mesh, peak_memory_bytes
from probe.plan import plan_probes


def main() -> None:
    member_id, name, address, master_port, ports = sys.argv[1:]
    with Mesh(address, PortRange.parse(ports), int(master_port)) as mesh:
        print(json.dumps(mesh.member(member_id).registration()), flush=True)
        order = json.loads(sys.stdin.readline())
        members = [parse_registration(key, value) for key, value in order["members"].items()]
        known = [member for member in members if member is not None]
        plan = plan_probes(member_id, known)
        time.sleep(max(0.0, order["start_at"] - time.time()))
        started_at = time.time()
        probes = mesh.probe(plan)
        report = NodeReport(
            run="bench",
            member_id=member_id,
            address=address,
            name=name,
            world_size=len(known),
            started_at=started_at,
            finished_at=time.time(),
            members={member.member_id: member.address for member in known},
            listeners=mesh.listeners,
            probes=probes,
            peak_memory_bytes=peak_memory_bytes(),
        )
        print(json.dumps(encode(report)), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
