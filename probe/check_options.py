"""The options of `check`: how they are parsed, which go together, and the wish they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probe.place import Wish

EXAMPLES = """\
examples:
  python3 fullmesh.pyz check --local 4
      four ranks on this machine: its Python, torch, ports and firewall,
      but no network
  torchrun --nnodes=4 --node-rank=R --master-addr=10.0.0.4 \\
    --master-port=29500 fullmesh.pyz check
      under a launcher: every rank runs it, rank 0 prints the answer
  python3 fullmesh.pyz check --meet /shared/check --nodes 4
      on every node, with a directory that all of them see
  RANK=1 WORLD_SIZE=4 MASTER_ADDR=10.0.0.4 MASTER_PORT=29500 \\
    python3 fullmesh.pyz check --meet tcp://10.0.0.4:29600
      the members meet on a port of rank 0 (without --meet: MASTER_PORT + 1)
  srun --ntasks-per-node=1 python3 fullmesh.pyz check
      under Slurm: every task runs it; MASTER_ADDR is the step's first host
      unless it is set
  python3 fullmesh.pyz check --hostfile hosts
      on every node, with the same file; a node's rank is its line
  python3 fullmesh.pyz check --hostfile hosts --row rows/
      also keeps this member's row, for hosts that have no place to meet
  python3 fullmesh.pyz check --merge rows/*.json
      the rows of all members, gathered by hand, judged together
  sudo python3 fullmesh.pyz check --hostfile hosts --bundle case.tar.gz
      also packs what a colleague needs; as root with the failing handshakes
  sudo python3 /opt/fullmesh/fullmesh.pyz check --run again-1
      on every node of a deployed cluster; rows meet in its bucket

exit status: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN
"""
MOST_LOCAL_RANKS = 256  # each is a process of about 25 MB, and torch adds 200 MB


def add_options(check: argparse.ArgumentParser) -> None:
    """The options of `check` on its parser."""
    check.add_argument("--json", action="store_true", help="print the whole answer as JSON")
    check.add_argument(
        "--local", type=_local, metavar="N", help="start N ranks on this machine and check them"
    )
    check.add_argument(
        "--merge", nargs="+", metavar="FILE", help="judge rows that were gathered by hand, and probe nothing"
    )
    check.add_argument("--row", metavar="FILE", help="also write this member's row there (FILE or a folder)")
    check.add_argument(
        "--bundle", metavar="FILE", help="also pack what a colleague needs, without secrets (.tar.gz)"
    )
    check.add_argument("--nodes", type=_count, metavar="N", help="how many members must meet")
    check.add_argument(
        "--meet",
        metavar="WHERE",
        help="where members meet: a DIRECTORY, s3://BUCKET/PREFIX or tcp://HOST:PORT",
    )
    check.add_argument("--hostfile", metavar="FILE", help="one host a line; slots= is ignored")
    check.add_argument("--address", help="this member's address (default: of the route to the others)")
    check.add_argument("--master-port", type=_port, metavar="PORT", help="port of torch's store (29500)")
    check.add_argument(
        "--no-master-port",
        action="store_true",
        help="leave MASTER_PORT to a job that runs or starts; needs --no-collective",
    )
    check.add_argument("--timeout-s", type=_seconds, metavar="S", help="judge after S seconds (120)")
    check.add_argument(
        "--collective-timeout-s",
        type=_seconds,
        metavar="S",
        help="time-out of torch's store and of each collective (30); try your job's own",
    )
    check.add_argument(
        "--idle-s",
        type=_seconds,
        metavar="S",
        help="leave a connection to each peer (two if many) alone for S seconds, then use it again",
    )
    check.add_argument("--no-collective", action="store_true", help="prove the network only, without torch")
    check.add_argument(
        "--collective",
        action="store_true",
        help="use MASTER_PORT and run the all_reduce even where a job trains already",
    )
    check.add_argument(
        "--run", dest="run_id", metavar="RUN", help="name of this check, the same on every member"
    )


def conflict(arguments: argparse.Namespace) -> str:
    """Why these options cannot stand together; "" where they can."""
    if arguments.no_master_port and not arguments.no_collective:
        return "--no-master-port needs --no-collective: torch's store would listen on MASTER_PORT"
    if arguments.collective and arguments.no_collective:
        return "--collective asks for what --no-collective leaves out; give one of them"
    if arguments.local is not None:
        given = _given(arguments, "nodes", "meet", "hostfile", "merge", "row")
        return f"--local N starts every rank itself; leave {given} out" if given else ""
    if arguments.merge is not None:
        given = _given(arguments, "meet", "hostfile", "address", "master_port", "timeout_s", "row", "bundle")
        return f"--merge judges files and probes nothing; leave {given} out" if given else ""
    return ""


def _given(arguments: argparse.Namespace, *names: str) -> str:
    """Those of the options that were given, for a sentence."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    return " and ".join(given)


def wish_of(arguments: argparse.Namespace) -> Wish:
    """What was asked for."""
    from probe.place import Wish  # noqa: PLC0415 - sockets and more, which --help does not need

    return Wish(
        run=arguments.run_id,
        nodes=arguments.nodes,
        meet=arguments.meet,
        address=arguments.address,
        master_port=arguments.master_port,
        deadline_s=arguments.timeout_s,
        collective_timeout_s=arguments.collective_timeout_s,
        idle_s=arguments.idle_s,
        beside_job=arguments.collective,
        hostfile=arguments.hostfile,
        row=arguments.row,
        listens_on_master=not arguments.no_master_port,
    )


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 2 or more")
    return int(text)


def _local(text: str) -> int:
    if not text.isdigit() or not 2 <= int(text) <= MOST_LOCAL_RANKS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks from 2 to {MOST_LOCAL_RANKS}")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 1 to 86400")
    return value
