"""Faults of how a job is started: variables, ports, members."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Between, Launch, OnNode, Together, everywhere
from lab.fault_scripts import NO_SERVER, server

_NOBODYS = "{network0}.250"  # in the subnet of node 0, and no node's
_AGENT = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "job-7", "MASTER_PORT": "29555"}
_ENDPOINT = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "{address0}:29400"}
_OLD_STORE = """
/opt/pytorch/bin/python - >/dev/null 2>&1 <<'EOF' &
import os, time, torch.distributed as d
store = d.TCPStore("0.0.0.0", 29500, 4, True, wait_for_workers=False)
store.set("/worker/0", "of an earlier run")
open("/run/fault-store.pid", "w").write(str(os.getpid()))
time.sleep(3600)
EOF
until [ -s /run/fault-store.pid ]; do sleep 0.05; done
"""
# A script's process has the script's name, as /proc tells it: what the probe takes for its launcher.
_BY_MPIRUN = """
printf '#!/bin/sh\\n%s "$@"\\n' "$(cat /run/fullmesh/torch-python)" >/run/mpirun; chmod +x /run/mpirun
cp /run/fullmesh/torch-python /run/torch-python.kept; echo /run/mpirun >/run/fullmesh/torch-python
"""
_BY_ITSELF = "mv /run/torch-python.kept /run/fullmesh/torch-python; rm /run/mpirun"
_KNOWN_AS_HEAD = 'echo "{address0} head" >>/etc/hosts'
_NOT_KNOWN = "sed -i '/ head$/d' /etc/hosts"


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
        boot_only=True,
        context={"cluster.deadline_s": "20"},
    ),
    Fault(
        id="peer-missing-member",
        title="the launcher never starts node 3",
        expected=(("peer-missing", "node:3"),),
        injection=Launch(absent=frozenset({3})),
        deadline_s=12.0,
    ),
    Fault(
        id="peer-late-to-meet",
        title="node 3 begins when the others have given up waiting",
        expected=(("peer-late", "node:3"),),
        injection=Together(parts=()),
        deadline_s=9.0,
        start_after_s={3: 14.0},
    ),
    Fault(
        id="master-addr-unresolvable",
        title="the launcher gives every node a MASTER_ADDR that no resolver knows",
        expected=(("master-addr-unresolvable", "cluster"),),
        injection=everywhere(MASTER_ADDR="head-node.ec2.internal"),
    ),
    Fault(
        id="master-addr-unresolvable-one-node",
        title="MASTER_ADDR is a name that /etc/hosts of every node but node 2 knows",
        expected=(("master-addr-unresolvable", "node:2"),),
        injection=Together(
            parts=(
                *(OnNode(rank=rank, script=_KNOWN_AS_HEAD, undo=_NOT_KNOWN) for rank in (0, 1, 3)),
                everywhere(MASTER_ADDR="head"),
            )
        ),
    ),
    Fault(
        id="master-addr-malformed",
        title="the launcher gives every node a MASTER_ADDR with a scheme and a port",
        expected=(("master-addr-malformed", "cluster"),),
        injection=everywhere(MASTER_ADDR="tcp://{address0}:29500"),
    ),
    Fault(
        id="master-addr-malformed-one-node",
        title="the launcher gives node 3 a MASTER_ADDR with brackets",
        expected=(("master-addr-malformed", "node:3"),),
        injection=Launch(changes={3: {"MASTER_ADDR": "<{address0}>"}}),
    ),
    Fault(
        id="master-addr-empty",
        title="the launcher gives node 2 an empty MASTER_ADDR",
        expected=(("master-addr-empty", "node:2"),),
        injection=Launch(changes={2: {"MASTER_ADDR": ""}}),
    ),
    Fault(
        id="master-addr-not-a-member",
        title="the launcher gives every node node 1's address as MASTER_ADDR",
        expected=(("master-addr-not-a-member", "cluster"),),
        injection=everywhere(MASTER_ADDR="{address1}"),
    ),
    Fault(
        id="master-addr-not-a-member-localhost",
        title="the launcher gives every node MASTER_ADDR=localhost",
        expected=tuple(("master-addr-not-a-member", f"node:{rank}") for rank in (1, 2, 3)),
        injection=everywhere(MASTER_ADDR="localhost"),
    ),
    Fault(
        id="master-unreachable",
        title="the launcher gives every node a MASTER_ADDR that nobody holds",
        expected=(("master-unreachable", "cluster"),),
        injection=everywhere(MASTER_ADDR=_NOBODYS),
    ),
    Fault(
        id="env-leftover",
        title="mpirun starts the job, and node 2's shell has RANK and WORLD_SIZE of an earlier one",
        expected=(("env-leftover", "node:2"),),
        injection=Together(
            parts=(
                *(OnNode(rank=rank, script=_BY_MPIRUN, undo=_BY_ITSELF) for rank in range(4)),
                Launch(
                    changes={
                        rank: {
                            "RANK": "1" if rank == 2 else None,
                            "WORLD_SIZE": "6" if rank == 2 else None,
                            "OMPI_COMM_WORLD_SIZE": "4",
                            "OMPI_COMM_WORLD_RANK": str(rank),
                        }
                        for rank in range(4)
                    }
                ),
            )
        ),
    ),
    Fault(
        id="stale-store",
        title="torch's store of an earlier run still answers on MASTER_PORT of node 0",
        expected=(("stale-store", "node:0"),),
        injection=OnNode(rank=0, script=_OLD_STORE, undo=NO_SERVER),
    ),
    Fault(
        id="rdzv-id-mismatch",
        title="torchrun was started with another --rdzv-id on node 2",
        expected=(("rdzv-id-mismatch", "node:2"),),
        injection=Launch(
            changes={rank: {"TORCHELASTIC_RUN_ID": "job-8" if rank == 2 else "job-7"} for rank in range(4)}
        ),
    ),
    Fault(
        id="rdzv-host-unrecognised",
        title="the rendezvous endpoint is node 0's address, which its own name does not resolve to",
        expected=(("rdzv-host-unrecognised", "node:0"),),
        injection=Together(
            parts=(
                OnNode(
                    rank=0,
                    script='echo "127.0.1.1 $(hostname)" >>/etc/hosts',
                    undo="sed -i '/^127.0.1.1 /d' /etc/hosts",
                ),
                everywhere(GLOO_SOCKET_IFNAME="ens5", **_ENDPOINT),
            )
        ),
    ),
    Fault(
        id="rdzv-port-blocked",
        title="the rendezvous port of node 0 is open, the store's port beside it is not",
        expected=(("rdzv-port-blocked", "cluster"),),
        injection=Together(
            parts=(
                OnNode(
                    rank=0,
                    script=server(29400, "kept.append(c)", "rendezvous") + server(29555, "kept.append(c)"),
                    undo=NO_SERVER,
                ),
                Between(pairs=((1, 0), (2, 0), (3, 0)), port=29555),
                everywhere(**_AGENT, **_ENDPOINT),
            )
        ),
    ),
    Fault(
        id="store-host-exited",
        title="torchrun's agent, which held the store, ended; its workers did not",
        expected=(("store-host-exited", "node:0"),),
        injection=everywhere(**_AGENT),
    ),
)
