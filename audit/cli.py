"""`audit`: does the account still hold what the mesh needs, and nothing else.

Only argparse is imported until the command runs, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diagnosis.command_line import complain, json_option

if TYPE_CHECKING:
    from cluster.ports import PortRange

EXAMPLES = """\
examples:
  fullmesh audit --snapshot DIR --tag fullmesh:cluster=fullmesh
      a folder with what aws ec2 describe-... --output json printed
  fullmesh audit --snapshot DIR --security-group sg-0123456789abcdef0 --json
      a cluster that something else made, by a group that its members carry

DIR holds security-groups.json, network-acls.json, route-tables.json,
subnets.json, network-interfaces.json, instances.json, vpcs.json and
security-group-rules.json. What is absent or cut off makes the answer
UNKNOWN as far as the answer needs it.

exit status: 0 PASS, 1 FAIL, 2 usage, 3 could not look
"""


def add_parsers(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `audit`; it sets `run`, a function of the parsed arguments to an exit status."""
    audit = subparsers.add_parser(
        "audit",
        help="can the mesh form by the account's rules, and who else gets in",
        description="Judge a cluster by what the account holds: which rule is missing, who gets in.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    json_option(audit)
    audit.add_argument("--snapshot", type=Path, metavar="DIR", help="read this folder instead of an account")
    who = audit.add_argument_group("members", "running instances that all of these select")
    who.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="KEY=VALUE", help="they carry this tag"
    )
    who.add_argument("--vpc-id", nargs="+", default=[], metavar="VPC", help="they are in one of these VPCs")
    who.add_argument(
        "--security-group", nargs="+", default=[], metavar="SG", help="they carry one of these groups"
    )
    who.add_argument("--instance-ids", nargs="+", default=[], metavar="ID", help="they are these")
    audit.add_argument(
        "--master-port", type=_port, default=29500, metavar="PORT", help="port of torch's store (29500)"
    )
    audit.add_argument(
        "--ephemeral-ports",
        type=_ports,
        default=None,
        metavar="FIRST-LAST",
        help="the nodes' net.ipv4.ip_local_port_range (32768-60999)",
    )
    audit.set_defaults(run=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    from audit.answer import attach
    from audit.members import Selection
    from cluster.ports import DEFAULT_EPHEMERAL_PORTS
    from cluster.snapshot import ClusterSnapshot

    selection = Selection(
        tags=tuple(arguments.tag),
        vpc_ids=tuple(arguments.vpc_id),
        group_ids=tuple(arguments.security_group),
        instance_ids=tuple(arguments.instance_ids),
    )
    if not selection:
        return complain(
            "who is a member was not said; name them with --tag KEY=VALUE, --vpc-id, --security-group "
            "or --instance-ids"
        )
    if arguments.snapshot is None:
        return complain("--snapshot DIR is missing: a folder with what aws ec2 describe-... printed")
    try:
        snapshot = ClusterSnapshot.from_directory(arguments.snapshot)
    except NotADirectoryError as error:
        return complain(str(error))
    answer = attach(
        snapshot,
        selection.members(snapshot),
        master_port=arguments.master_port,
        ephemeral=arguments.ephemeral_ports or DEFAULT_EPHEMERAL_PORTS,
    )
    sys.stdout.write(answer.to_json() if arguments.json else answer.to_terminal())
    return answer.exit_status


def _tag(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, for example fullmesh:cluster=demo")
    return key, value


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _ports(text: str) -> PortRange:
    from cluster.ports import PortRange

    try:
        return PortRange.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST within 1-65535") from None
