"""This node's place in a cluster: who it is, how many must meet, and where they meet.

Ways to it: EC2 (the configuration that user data wrote, and the metadata service), the variables
of torchrun, Slurm, MPI or another launcher, a host file, and a shared place with a count.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Iterator, Mapping, Optional

from cluster.keys import run_prefix
from cluster.node_config import CONFIG_PATH, NodeConfig
from cluster.serial import DecodeError, decode
from diagnosis.launchers import SLURM, batch_script
from probe.by_launcher import LAUNCHER_VARIABLES, by_environment, hostfile_place, launcher_variables
from probe.meeting import on_a_port, shared_board
from probe.place import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MASTER_PORT,
    DiscoverError,
    Place,
    Wish,
    left_out,
    own_address,
    own_range,
)


@contextlib.contextmanager
def take_place(wish: Wish, environ: Mapping[str, str]) -> Iterator[Place]:
    """This node's place by the first way that applies: a shared place with a count, a host file, a
    launcher's variables, EC2.

    Raises:
        DiscoverError, BoardError: what is missing or wrong.
    """
    if not on_a_port(wish.meet) and wish.nodes is not None:
        yield by_shared_place(wish)
        return
    variables: Optional[Mapping[str, str]]
    if wish.hostfile is not None:
        wish, variables = hostfile_place(wish)
    else:
        variables = launcher_variables(wish, environ)
    if variables is not None or any(environ.get(name) for name in LAUNCHER_VARIABLES):
        with by_environment(wish, environ, variables or {}) as place:
            yield place
    elif batch_script(environ) and not os.path.exists(wish.config_path):
        raise DiscoverError(
            f"{SLURM.rank}={environ[SLURM.rank]} is the batch script's or the shell's own: no srun started "
            "this process; run srun --ntasks-per-node=1 python3 fullmesh.pyz check"
        )
    elif wish.meet and on_a_port(wish.meet):
        raise DiscoverError(
            f"--meet {wish.meet} needs each member's rank; set {', '.join(LAUNCHER_VARIABLES)}, "
            "give --hostfile FILE, or start it with torchrun, srun or mpirun"
        )
    elif wish.meet:
        raise DiscoverError(
            "--meet DIRECTORY needs --nodes N, the number of members that must meet, where no launcher "
            "tells it"
        )
    elif os.path.exists(wish.config_path):
        yield by_ec2(wish)
    else:
        raise DiscoverError(
            f"nothing tells who else is in the cluster: no {wish.config_path}, no RANK and WORLD_SIZE, "
            "no --meet; run it under torchrun, srun or mpirun, or on every node: check --hostfile FILE, or "
            "check --meet SHARED_DIRECTORY --nodes N; on one machine: check --local N"
        )


def is_deployed(wish: Wish, environ: Mapping[str, str]) -> bool:
    """Whether `take_place` will take the place of an EC2 instance."""
    if wish.meet or wish.hostfile or any(environ.get(name) for name in LAUNCHER_VARIABLES):
        return False
    return os.path.exists(wish.config_path) and launcher_variables(wish, environ) is None


def read_config(path: str = CONFIG_PATH) -> NodeConfig:
    """The node's configuration.

    Raises:
        DiscoverError: it is missing, or does not have the shape of NodeConfig.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return decode(NodeConfig, json.load(file))
    except OSError as error:
        raise DiscoverError(
            f"cannot read {path}: {error.strerror}; user data writes it at first boot"
        ) from error
    except (json.JSONDecodeError, DecodeError) as error:
        raise DiscoverError(f"{path} is not a node configuration: {error}") from error


def by_ec2(wish: Wish) -> Place:
    """The place of an EC2 instance; talks to the metadata service, and to S3 not yet."""
    from probe.aws import S3Client  # noqa: PLC0415 - http and ssl, only where they are needed
    from probe.credentials import CredentialChain  # noqa: PLC0415 - as above
    from probe.metadata import InstanceMetadata, MetadataError  # noqa: PLC0415 - as above
    from probe.s3_board import S3Board  # noqa: PLC0415 - as above

    config = read_config(wish.config_path)
    metadata = InstanceMetadata()
    try:
        instance_id, address = metadata.instance_id(), metadata.private_ipv4()
        name = metadata.local_hostname()
    except MetadataError as error:
        raise DiscoverError(str(error)) from error
    credentials = CredentialChain(metadata)
    run = wish.run or config.run
    client = S3Client(bucket=config.bucket, region=config.region, credentials=credentials)
    return Place(
        run=run,
        member_id=instance_id,
        address=address,
        name=name,
        nodes=wish.nodes or config.nodes,
        board=S3Board(client, run_prefix(run), instance_id, role_id=config.role_id),
        master_port=wish.master_port or config.master_port,
        ephemeral_ports=own_range(config.ephemeral_ports),
        deadline_s=wish.deadline_s or config.deadline_s,
        collective_bytes=config.collective_bytes,
        config=config,
        credentials=credentials,
        listens_on_master=wish.listens_on_master,
        skipped=left_out(wish, wish.master_port or config.master_port),
    )


def by_shared_place(wish: Wish) -> Place:
    """The place of a member that somebody started by hand; its rank follows from its address."""
    address = wish.address or own_address()
    member_id = f"{address}-{os.getpid()}"
    run = wish.run or "check"
    return Place(
        run=run,
        member_id=member_id,
        address=address,
        name=socket.gethostname(),
        nodes=wish.nodes or 0,
        board=shared_board(wish.meet or "", run, member_id),
        master_port=wish.master_port or DEFAULT_MASTER_PORT,
        ephemeral_ports=own_range(None),
        deadline_s=wish.deadline_s or DEFAULT_DEADLINE_S,
        listens_on_master=wish.listens_on_master,
        skipped=left_out(wish, wish.master_port),
    )
