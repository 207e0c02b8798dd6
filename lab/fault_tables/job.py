"""Faults of a running job's processes, which only its all_reduce shows."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Launch, OnNode
from lab.fault_python import on_rank, other_torch, slow_torch
from lab.fault_scene import Injection


def _goes_another_way(rank: int, name: str, body: str) -> Injection:
    """That rank's torch.distributed.NAME is `body` (`lab.fault_python.other_torch`)."""
    return on_rank(rank, other_torch(name, body))


# The measured part begins with a barrier: by then every rank has all_reduced already.
_KILLED = "time.sleep(0.5)\nos.kill(os.getpid(), signal.SIGKILL)"
_CRASHES = "time.sleep(0.5)\nos.kill(os.getpid(), signal.SIGSEGV)"
_TAKES_ITS_PROBE_ALONG = "os.kill(os.getppid(), signal.SIGKILL)\nos.kill(os.getpid(), signal.SIGKILL)"

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="peer-died",
        title="the process of node 2 is killed in the middle of the all_reduce",
        expected=(("peer-died", "node:2"),),
        injection=_goes_another_way(2, "barrier", _KILLED),
        collective=True,
    ),
    Fault(
        id="peer-died-crash",
        title="the process of node 1 crashes in the middle of the all_reduce",
        expected=(("peer-died", "node:1"),),
        injection=_goes_another_way(1, "barrier", _CRASHES),
        collective=True,
    ),
    Fault(
        id="peer-died-with-its-probe",
        title="all processes of node 2 are killed at once in the all_reduce, so that nobody there can tell",
        expected=(("peer-died", "node:2"),),
        injection=_goes_another_way(2, "barrier", _TAKES_ITS_PROBE_ALONG),
        collective=True,
        deadline_s=30.0,
    ),
    Fault(
        id="store-host-exited-killed",
        title="the process of node 0, which holds the store, is killed before the ranks have met",
        expected=(("store-host-exited", "node:0"),),
        injection=_goes_another_way(0, "init_process_group", _KILLED),
        collective=True,
    ),
    Fault(
        id="peer-out-of-memory",
        title="the process of node 2 may have 330 MB of memory, and torch's tensors need more",
        expected=(("peer-out-of-memory", "node:2"),),
        injection=Launch(shells={2: "ulimit -d 330000"}),
        collective=True,
    ),
    Fault(
        id="peer-frozen",
        title="the process of node 2 is stopped in the middle of the all_reduce",
        expected=(("peer-frozen", "node:2"),),
        injection=_goes_another_way(
            2,
            "all_reduce",
            "if args[0].numel() > 10**6: os.kill(os.getpid(), signal.SIGSTOP)\nreal(*args, **kwargs)",
        ),
        collective=True,
    ),
    Fault(
        id="peer-not-in-collective",
        title="the program of node 2 waits for something else while the others are in a collective",
        expected=(("peer-not-in-collective", "node:2"),),
        injection=_goes_another_way(2, "monitored_barrier", "time.sleep(600)"),
        collective=True,
        options=("--collective-timeout-s", "5"),
    ),
    Fault(
        id="collective-wrong-result",
        title="the memory of node 2 flips a bit of what the all_reduce returns",
        expected=(("collective-wrong-result", "node:2"),),
        injection=_goes_another_way(
            2, "all_reduce", "real(*args, **kwargs)\nif args[0].numel() > 1000: args[0][-1] += 1"
        ),
        collective=True,
    ),
    Fault(
        id="collective-mismatch",
        title="node 2 is configured to all_reduce another size than the others",
        expected=(("collective-mismatch", "node:2"),),
        injection=OnNode(
            rank=2,
            script="cd /etc/fullmesh; cp config.json config.before; "
            'sed -i \'s/"collective_bytes": *[0-9]*/"collective_bytes": 4096/\' config.json',
            undo="cd /etc/fullmesh; mv config.before config.json",
        ),
        collective=True,
    ),
    Fault(
        id="timeout-too-short",
        title="node 2 needs 30 s longer to import torch, and the job's time-out is 3 s",
        expected=(("timeout-too-short", "cluster"),),
        injection=on_rank(2, slow_torch(30)),  # imports side by side on a busy machine differ by seconds
        collective=True,
        deadline_s=120.0,
        options=("--collective-timeout-s", "3"),
    ),
    Fault(
        id="peer-late",
        title="node 2 needs 34 s to import torch, and the others wait for 30 s",
        expected=(("peer-late", "node:2"),),
        injection=on_rank(2, slow_torch(34)),
        collective=True,
        deadline_s=45.0,  # the others wait two thirds of it; on a loaded machine torch itself takes seconds
    ),
    Fault(
        id="transport-unsupported",
        title="node 2 asks for a transport that this build of torch lacks",
        expected=(("transport-unsupported", "node:2"),),
        injection=Launch(changes={2: {"GLOO_DEVICE_TRANSPORT": "TCP_TLS"}}),
        collective=True,
    ),
)
