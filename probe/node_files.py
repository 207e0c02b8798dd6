"""What a proven node keeps on disk, ready for torchrun: cluster.env and the host file.

They follow the cluster's latest verdict: a PASS writes them, and a FAIL takes cluster.env away
(to cluster.env.failed), so that no job starts on a mesh that is known to be broken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from typing import Sequence

from cluster.node_config import CLUSTER_ENV_PATH, HOSTFILE_PATH
from diagnosis.report import Diagnosis, NodeVerdict, Verdict
from probe.interfaces import interface_of, read_interfaces
from probe.place import DEFAULT_MASTER_PORT, Place
from probe.rows import Say

WITHDRAWN = ".failed"


def keep_node_files(
    place: Place,
    diagnosis: Diagnosis,
    say: Say,
    *,
    earlier: bool = False,
    env_path: str = CLUSTER_ENV_PATH,
    hostfile_path: str = HOSTFILE_PATH,
) -> Diagnosis:
    """Let a deployed node's files follow the verdict of its whole cluster.

    A verdict that holds no nodes, or names nothing that is broken (only who else gets in), says
    nothing against the mesh, and takes nothing away; nor does UNKNOWN.

    earlier: the verdict was reached in an earlier run of this stage, so newer files stay.

    Returns:
        The verdict; UNKNOWN where it is PASS and the files could not be written.
    """
    if place.config is None or place.nodes != place.config.nodes:
        return diagnosis
    broken = bool(diagnosis.nodes) and bool(diagnosis.causes or diagnosis.candidates)
    if diagnosis.verdict is Verdict.FAIL and broken and not earlier:
        withdraw(env_path, say)
    newer = earlier and any(os.path.exists(path) for path in (env_path, env_path + WITHDRAWN))
    if diagnosis.verdict is not Verdict.PASS or newer:
        return diagnosis
    try:
        write_node_files(
            diagnosis.nodes,
            member_id=place.member_id,
            master_port=place.master_port or DEFAULT_MASTER_PORT,
            interface=interface_of(place.address, read_interfaces()) or "",
            env_path=env_path,
            hostfile_path=hostfile_path,
        )
    except (OSError, ValueError) as error:
        text = f"{place.name}: {env_path} and {hostfile_path} could not be written: {error}"
        say(text)
        return dataclasses.replace(
            diagnosis, verdict=Verdict.UNKNOWN, unanswered=(*diagnosis.unanswered, text)
        )
    return diagnosis


def withdraw(env_path: str, say: Say) -> None:
    """Take cluster.env away, so that nothing starts by it; what it said stays beside it."""
    try:
        os.replace(env_path, env_path + WITHDRAWN)
    except FileNotFoundError:
        return
    except OSError as error:
        say(f"the mesh is broken, but {env_path} could not be taken away: {error.strerror}")
        return
    say(f"the mesh is broken: {env_path} is now {env_path}{WITHDRAWN}; the next check that passes writes it")


def write_node_files(
    nodes: Sequence[NodeVerdict],
    *,
    member_id: str,
    master_port: int,
    interface: str,
    env_path: str = CLUSTER_ENV_PATH,
    hostfile_path: str = HOSTFILE_PATH,
) -> None:
    """Write both files, each whole or not at all; a file that is right already is left alone.

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
    with contextlib.suppress(FileNotFoundError):
        os.unlink(env_path + WITHDRAWN)


def _replace(path: str, text: str) -> None:
    with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        if file.read() == text:
            return
    unfinished = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(unfinished, "x", encoding="ascii") as file:
            file.write(text)
        os.replace(unfinished, path)
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise
