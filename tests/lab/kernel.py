"""Real nodes behind a real firewall, from describe-* documents alone: no control plane, no services.

Runs as its own process, because it becomes the init of a lab. Prints one JSON line: the outcome of
every flow asked for ("SOURCE>TARGET:PORT"), and the ruleset that each node sees.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cluster.snapshot import ClusterSnapshot
from lab import fabric, firewall, image, node, sandbox
from lab.facts import link_of, primary_interface
from lab.observe import running_instances

LISTENING = (29500, 40000)

PROBE = """#!/usr/bin/env python3
import json, socket, subprocess, threading, time
address, flows = {address!r}, {flows!r}  # flow -> seconds of patience
for port in {ports!r}:
    server = socket.create_server((address, port), backlog=64)
    accept = lambda s=server: [s.accept()[0].close() for _ in iter(int, 1)]
    threading.Thread(target=accept, daemon=True).start()
time.sleep(max(0, {start!r} - time.time()))
found, threads = {{}}, []
def probe(flow):
    target, _, port = flow.partition(">")[2].rpartition(":")
    try:
        socket.create_connection((target, int(port)), timeout=flows[flow]).close()
        found[flow] = "connected"
    except TimeoutError:
        found[flow] = "timed out"
    except OSError as error:
        found[flow] = error.strerror.lower()
for flow in flows:
    threads.append(threading.Thread(target=probe, args=(flow,)))
    threads[-1].start()
for thread in threads:
    thread.join()
seen = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True)
print("RESULT", json.dumps({{"flows": found, "ruleset": seen.stdout + seen.stderr}}), flush=True)
time.sleep(60)
"""


def main(folder: Path, wanted: dict[str, Any]) -> None:
    """Boot the nodes of `wanted["documents"]`, try `wanted["flows"]`, print the answer."""
    sandbox.die_with_parent(signal.SIGKILL, os.getppid())
    init = sandbox.contain()
    if init:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
    (folder / "root").mkdir()
    documents = wanted["documents"]
    snapshot = ClusterSnapshot.from_documents(documents)
    network = fabric.Fabric()
    network.set_vpc(["10.42.0.0/16"])
    system = image.Image.of_this_machine()
    start = time.time() + 1.0
    started, ports = [], {}
    for instance in running_instances(documents):
        link = link_of(instance, snapshot)
        own = {f: s for f, s in wanted["flows"].items() if f.startswith(f"{link.address}>")}
        script = PROBE.format(address=link.address, flows=own, ports=LISTENING, start=start)
        plan = node.NodePlan(
            instance_id=instance["InstanceId"],
            link=link,
            identity=image.Identity(
                host_name=f"ip-{link.address.replace('.', '-')}",
                domain="ec2.internal",
                resolver="10.42.0.2",
                environment={},
            ),
            user_data=script.encode(),
            log=folder / f"{link.address}.log",
            workspace=folder / "root",
        )
        started.append((plan, node.start(plan, system)))
        ports[primary_interface(instance, snapshot).id] = link.veth
    network.plug([(plan.link, waiting.pid) for plan, waiting in started])
    network.load_ruleset(firewall.compile_ruleset(snapshot, ports))
    for _, waiting in started:
        waiting.boot()
    for _, waiting in started:
        waiting.wait_ready()
    answers = [_result(plan.log) for plan, _ in started]
    flows = {flow: outcome for answer in answers for flow, outcome in answer["flows"].items()}
    sys.stdout.write(
        json.dumps({"flows": flows, "rulesets": [answer["ruleset"] for answer in answers]}) + "\n"
    )
    sys.stdout.flush()
    os._exit(0)


def _result(log: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines() if log.exists() else ():
            if line.startswith("RESULT "):
                found: dict[str, Any] = json.loads(line[7:])
                return found
        time.sleep(0.05)
    raise TimeoutError(f"{log} has no result: {log.read_text() if log.exists() else 'no such file'}")
