"""Faults of a host's limits, and of what tracks connections between hosts."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_host import Launch, OnNode, Together
from lab.fault_idle import ForgetsIdle
from lab.fault_python import on_rank, other_torch

# 256 ports are enough for the probe and for a job, but not beside a process that listens on all.
_FEW_PORTS = "40000 40255"
_EVERY_PORT = """\
import socket
held = []
for port in range(40000, 40256):
    sock = socket.socket()
    try:
        sock.bind(("0.0.0.0", port))
        sock.listen(1)
    except OSError:
        continue
    held.append(sock)
return real(*args, **kwargs)
"""
# Sixteen connections at once, five times a second, to node 2's listener on MASTER_PORT.
_STORM = """\
python3 - >/dev/null 2>&1 <<'EOF' &
import os, socket, time
open('/run/fault-storm.pid', 'w').write(str(os.getpid()))
while True:
    found = [socket.socket() for _ in range(16)]
    for sock in found:
        sock.setblocking(False)
        sock.connect_ex(('{address2}', 29500))
    time.sleep(0.2)
    for sock in found:
        sock.close()
EOF
until [ -s /run/fault-storm.pid ]; do sleep 0.02; done
"""
_NO_STORM = "kill $(cat /run/fault-storm.pid); rm /run/fault-storm.pid"


def _sysctl(rank: int, name: str, value: str) -> OnNode:
    file = f"/proc/sys/{name.replace('.', '/')}"
    before = f"/run/fault-{name}"
    return OnNode(
        rank=rank,
        script=f"cat {file} >{before}; echo '{value}' >{file}",
        undo=f"cat {before} >{file}; rm {before}",
    )


FAULTS: tuple[Fault, ...] = (
    Fault(
        id="fd-limit",
        title="a process on node 2 may open 12 files",
        expected=(("fd-limit", "node:2"),),
        injection=Launch(shells={2: "ulimit -Sn 12"}),
    ),
    Fault(
        id="port-exhaustion",
        title="node 2 has 256 ephemeral ports, and its job listens on every one of them",
        expected=(("port-exhaustion", "node:2"),),
        injection=Together(
            (
                _sysctl(2, "net.ipv4.ip_local_port_range", _FEW_PORTS),
                on_rank(2, other_torch("init_process_group", _EVERY_PORT)),
            )
        ),
        collective=True,
    ),
    Fault(
        id="listen-backlog",
        title="node 2's accept queues hold one connection, and sixteen come at once",
        expected=(("listen-backlog", "node:2"),),
        injection=Together(
            (
                _sysctl(2, "net.core.somaxconn", "1"),
                OnNode(rank=1, script=_STORM, undo=_NO_STORM),
            )
        ),
    ),
    Fault(
        id="idle-connection-dropped",
        title="what tracks connections between nodes 1 and 3 forgets one that idles for 2 s",
        expected=(("idle-connection-dropped", "pair:1>3"),),
        injection=ForgetsIdle(pairs=((1, 3),), after_s=2),
        options=("--idle-s", "5"),
    ),
)
