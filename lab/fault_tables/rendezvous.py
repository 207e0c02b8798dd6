"""Faults of how a job is started: variables, ports, members."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Launch, OnNode
from lab.fault_scripts import NO_SERVER, server

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="port-in-use",
        title="another process on node 0 holds MASTER_PORT",
        expected=(("port-in-use", "node:0"),),
        injection=OnNode(rank=0, script=server(29500, "kept.append(c)"), undo=NO_SERVER),
        at_boot=True,
    ),
    Fault(
        id="env-missing",
        title="the launcher gives node 2 no MASTER_PORT",
        expected=(("env-missing", "node:2"),),
        injection=Launch(changes={2: {"MASTER_PORT": None}}),
    ),
    Fault(
        id="env-missing-rank",
        title="the launcher gives node 2 no RANK",
        expected=(("env-missing", "node:2"),),
        injection=Launch(changes={2: {"RANK": None}}),
    ),
    Fault(
        id="env-inconsistent",
        title="the launcher gives node 2 another MASTER_PORT",
        expected=(("env-inconsistent", "node:2"),),
        injection=Launch(changes={2: {"MASTER_PORT": "29501"}}),
    ),
    Fault(
        id="env-inconsistent-address",
        title="the launcher gives node 3 node 1's address as MASTER_ADDR",
        expected=(("env-inconsistent", "node:3"),),
        injection=Launch(changes={3: {"MASTER_ADDR": "{address1}"}}),
    ),
    Fault(
        id="world-size-mismatch",
        title="the launcher gives node 2 a WORLD_SIZE of 5",
        expected=(("world-size-mismatch", "node:2"),),
        injection=Launch(changes={2: {"WORLD_SIZE": "5"}}),
    ),
    Fault(
        id="world-size-mismatch-smaller",
        title="the launcher gives node 1 a WORLD_SIZE of 3",
        expected=(("world-size-mismatch", "node:1"),),
        injection=Launch(changes={1: {"WORLD_SIZE": "3"}}),
    ),
    Fault(
        id="duplicate-rank",
        title="the launcher gives node 2 the rank of node 1",
        expected=(("duplicate-rank", "node:1"),),
        injection=Launch(changes={2: {"RANK": "1"}}),
    ),
    Fault(
        id="peer-missing",
        title="node 3's first boot hangs before the probe",
        expected=(("peer-missing", "cluster"),),
        injection=OnNode(rank=3, script="exec sleep infinity", undo="true"),
        at_boot=True,
        context={"cluster.deadline_s": "20"},
    ),
    Fault(
        id="peer-missing-member",
        title="the launcher never starts node 3",
        expected=(("peer-missing", "node:3"),),
        injection=Launch(absent=frozenset({3})),
        deadline_s=12.0,
    ),
)
