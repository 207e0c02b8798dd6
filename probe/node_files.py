"""What a proven node keeps on disk, ready for torchrun: cluster.env and the host file."""

from __future__ import annotations

import os
import uuid
from typing import Sequence

from cluster.node_config import CLUSTER_ENV_PATH, HOSTFILE_PATH
from diagnosis.report import NodeVerdict


def write_node_files(
    nodes: Sequence[NodeVerdict],
    *,
    member_id: str,
    master_port: int,
    interface: str,
    env_path: str = CLUSTER_ENV_PATH,
    hostfile_path: str = HOSTFILE_PATH,
) -> None:
    """Write both files, each whole or not at all.

    Raises:
        OSError: a file cannot be written.
        ValueError: `member_id` is none of `nodes`.
    """
    ordered = sorted(nodes, key=lambda node: node.rank)
    ranks = [node.rank for node in ordered if node.member_id == member_id]
    if len(ranks) != 1:
        raise ValueError(f"{member_id!r} stands {len(ranks)} times among the {len(ordered)} proven nodes")
    values = {
        "MASTER_ADDR": ordered[0].address,
        "MASTER_PORT": str(master_port),
        "WORLD_SIZE": str(len(ordered)),  # one process a node; torchrun multiplies by --nproc-per-node
        "NNODES": str(len(ordered)),
        "NODE_RANK": str(ranks[0]),
        "GLOO_SOCKET_IFNAME": interface,
    }
    _replace(env_path, "".join(f"{name}={value}\n" for name, value in values.items() if value))
    _replace(hostfile_path, "".join(f"{node.address}\n" for node in ordered))


def _replace(path: str, text: str) -> None:
    unfinished = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(unfinished, "x", encoding="ascii") as file:
            file.write(text)
        os.replace(unfinished, path)
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
