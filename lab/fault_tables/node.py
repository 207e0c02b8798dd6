"""Faults of the node itself and of its surroundings, and settings that do nothing."""

from __future__ import annotations

from lab.fault import Fault
from lab.fault_api import NoLogGroup
from lab.fault_host import Launch, OnNode, everywhere
from lab.fault_scripts import NO_NFT, nft

# Taken for a Python with torch, until it is started: as of an illegal instruction.
_BROKEN_PYTHON = """
mkdir -p /opt/fullmesh/torch/bin; cd /opt/fullmesh/torch/bin
printf '#!/bin/sh\\n[ "$1" = -c ] && exit 0\\necho "Illegal instruction"; exit 132\\n' >python
chmod +x python
"""

FAULTS: tuple[Fault, ...] = (
    Fault(
        id="bootstrap-failed",
        title="the Python with torch of node 3 is built for another processor",
        expected=(("bootstrap-failed", "node:3"),),
        injection=OnNode(rank=3, script=_BROKEN_PYTHON, undo="rm -r /opt/fullmesh/torch"),
        at_boot=True,
        boot_only=True,
    ),
    Fault(
        id="storage-unreachable",
        title="node 3's own firewall lets nothing out to port 443, where the bucket is",
        expected=(("storage-unreachable", "node:3"),),
        injection=OnNode(rank=3, script=nft("tcp dport 443 drop", hook="output"), undo=NO_NFT),
        deadline_s=16.0,
    ),
    Fault(
        id="publish-failed",
        title="somebody deleted the log group that verdicts are written to",
        expected=(("publish-failed", "cluster"),),
        injection=NoLogGroup(output="VerdictLogGroup"),
    ),
    Fault(
        id="env-no-effect",
        title="the launcher gives every node GLOO_TIMEOUT_SECONDS, which nothing reads",
        expected=(("env-no-effect", "cluster"),),
        injection=everywhere(GLOO_TIMEOUT_SECONDS="600"),
    ),
    Fault(
        id="env-no-effect-one-node",
        title="the launcher gives node 1 GLOO_COMPRESSION, which nothing reads",
        expected=(("env-no-effect", "node:1"),),
        injection=Launch(changes={1: {"GLOO_COMPRESSION": "1"}}),
    ),
    Fault(
        id="transport-unsupported-unknown",
        title="the launcher gives node 2 a GLOO_DEVICE_TRANSPORT that no build has",
        expected=(("transport-unsupported", "node:2"),),
        injection=Launch(changes={2: {"GLOO_DEVICE_TRANSPORT": "RDMA"}}),
    ),
)
