"""`audit`: does the account still hold what the mesh needs, and nothing else.

Only argparse is imported until the command runs, so that --help answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from diagnosis.command_line import (
    EXIT_UNKNOWN,
    EXIT_USAGE,
    CommandError,
    context_option,
    json_option,
    read_spec,
    write_json,
)

if TYPE_CHECKING:
    from audit.documents import Documents
    from audit.drift import OurStack
    from audit.members import Selection
    from cluster.ports import PortRange

DEFAULT_MASTER_PORT = 29500

EXAMPLES = """\
examples:
  fullmesh audit
      the deployed stack: what stands against what it was told
  fullmesh audit --tag Project=training --master-port 29500
      a cluster that something else made: can the mesh form, who else gets in
  fullmesh audit --security-group sg-0123456789abcdef0 --save-snapshot DIR
      by a group that its members carry; DIR takes what was read
  fullmesh audit --snapshot DIR --tag Project=training --json
      a folder that was saved, or what aws ec2 describe-... printed as JSON
  fullmesh audit --iam-policy
      the permissions that reading an account needs

DIR holds security-groups.json, network-acls.json, route-tables.json,
subnets.json, network-interfaces.json, instances.json, vpcs.json and
security-group-rules.json. What is absent or cut off makes the answer
UNKNOWN as far as the answer needs it.

exit status: 0 in sync (PASS), 1 drifted (FAIL), 2 usage, 3 could not look
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
    context_option(audit)
    audit.add_argument("--region", help="look there (default: as the AWS CLI finds it)")
    audit.add_argument("--snapshot", type=Path, metavar="DIR", help="read this folder instead of an account")
    audit.add_argument("--save-snapshot", type=Path, metavar="DIR", help="write what was read to this folder")
    audit.add_argument(
        "--iam-policy", action="store_true", help="print the policy that reading needs, and nothing else"
    )
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
        "--master-port", type=_port, default=None, metavar="PORT", help="port of torch's store (29500)"
    )
    audit.add_argument(
        "--ephemeral-ports",
        type=_ports,
        default=None,
        metavar="FIRST-LAST",
        help="the nodes' net.ipv4.ip_local_port_range (32768-60999)",
    )
    audit.set_defaults(run=_audit)


def _audit(options: argparse.Namespace) -> int:
    try:
        return _answered(options)
    except (CommandError, BrokenPipeError, KeyboardInterrupt):
        raise
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means FAIL here; a crash knows nothing
        traceback.print_exc()
        return EXIT_UNKNOWN


def _answered(options: argparse.Namespace) -> int:
    from audit.answer import attach, audit_stack
    from audit.members import Selection
    from audit.readings import iam_policy
    from cluster.ports import DEFAULT_EPHEMERAL_PORTS

    if options.iam_policy:
        write_json(iam_policy(read_spec(options).name))
        return 0
    selection = Selection(
        tags=tuple(options.tag),
        vpc_ids=tuple(options.vpc_id),
        group_ids=tuple(options.security_group),
        instance_ids=tuple(options.instance_ids),
    )
    documents = _documents(options, selection)
    if selection:
        snapshot = documents.snapshot()
        answer = attach(
            snapshot,
            selection.members(snapshot),
            master_port=options.master_port or DEFAULT_MASTER_PORT,
            ephemeral=options.ephemeral_ports or DEFAULT_EPHEMERAL_PORTS,
        )
    else:
        answer = audit_stack(documents, _our_stack(options, documents))
    sys.stdout.write(answer.to_json() if options.json else answer.to_terminal())
    return answer.exit_status


def _our_stack(options: argparse.Namespace, documents: Documents) -> OurStack:
    """The stack to compare with.

    Raises:
        CommandError: a folder holds none, or an option speaks of a cluster that is not ours.
    """
    from audit.drift import our_stack

    if options.master_port or options.ephemeral_ports:
        told = "--master-port and --ephemeral-ports go with --tag and its like: a stack of ours says its own"
        raise CommandError(told, EXIT_USAGE)
    if options.snapshot is None:
        return our_stack(documents, read_spec(options).name)
    if not documents.has("stack-template"):
        told = (
            f"{options.snapshot} holds no stack of ours; say who is a member with --tag KEY=VALUE, --vpc-id, "
        )
        raise CommandError(told + "--security-group or --instance-ids", EXIT_USAGE)
    return our_stack(documents)


def _documents(options: argparse.Namespace, selection: Selection) -> Documents:
    """What the answer is made of: a folder's documents, or the account's.

    Raises:
        CommandError: the folder cannot be read or written.
    """
    from audit.documents import Documents

    try:
        if options.snapshot is not None:
            documents = Documents.from_directory(options.snapshot)
        else:
            import boto3

            from audit.live import read_selected, read_stack

            session = boto3.Session(region_name=options.region or os.environ.get("AWS_REGION"))
            if selection:
                documents = read_selected(session, selection)
            else:
                documents = read_stack(session, read_spec(options).name)
        if options.save_snapshot is not None:
            documents.save(options.save_snapshot)
    except NotADirectoryError as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    except OSError as error:
        raise CommandError(f"{options.save_snapshot} cannot be written ({error.strerror})") from error
    return documents


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
