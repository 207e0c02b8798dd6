"""The options of `audit`. argparse and nothing more, so that --help answers at once."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from diagnosis.command_line import context_option

if TYPE_CHECKING:
    from cluster.ports import PortRange
    from diagnosis.what_if_words import Change

LEVELS = ("cosmetic", "weakens", "opens-cluster", "breaks-new-connections-only", "breaks-mesh")
DEFAULT_WATCH_S = 60
PROFILES = ("all", "pinned", "efa")
EVERY_PROFILE = "every"

EXAMPLES = """\
examples:
  fullmesh audit
      the deployed stack: what stands against what it was told
  fullmesh audit --fail-on weakens --baseline reviewed.json --sarif
      for continuous integration: tags do not fail it, nor what was reviewed
  fullmesh audit --who
      and who made each difference, by CloudTrail
  fullmesh audit --revert
      show the calls that bring back what was told, ask, make them, look again
  fullmesh audit --watch 30
      look every 30 s and say what changed; Ctrl-C ends it
  fullmesh audit --tag Project=training --master-port 29500
      a cluster that something else made: can the mesh form, who else gets in
  fullmesh audit --snapshot DIR --tag Project=training --json
      a folder that was saved, or what aws ec2 describe-... printed as JSON

  fullmesh audit --what-if 'revoke sg-0123 tcp 0-65535 from self'
      would the mesh still be possible? See below for other changes
  fullmesh audit --tag Project=training --suggest pinned
      the rules that are needed and no more, as commands

A CHANGE is one of (SOURCE: a group, a CIDR, a prefix list or self)
  revoke|authorize SG [ingress|egress] PROTOCOL PORTS from|to SOURCE
  revoke SG sgr-...
  attach|detach SG to|from i-...|eni-...
  allow|deny ACL NUMBER [ingress|egress] PROTOCOL PORTS from|to CIDR
  delete ACL NUMBER ingress|egress

DIR holds security-groups.json, network-acls.json, route-tables.json,
subnets.json, network-interfaces.json, instances.json, vpcs.json and
security-group-rules.json. What is absent or cut off makes the answer
UNKNOWN as far as the answer needs it.

exit status: 0 in sync (PASS), 1 drifted (FAIL), 2 usage, 3 could not look;
with --what-if that of the world after the changes
"""


def add_options(audit: argparse.ArgumentParser) -> None:
    """Everything that `audit` takes."""
    context_option(audit)
    audit.add_argument("--region", help="look there (default: as the AWS CLI finds it)")
    audit.add_argument("--snapshot", type=Path, metavar="DIR", help="read this folder instead of an account")
    audit.add_argument("--save-snapshot", type=Path, metavar="DIR", help="write what was read to this folder")
    audit.add_argument(
        "--iam-policy", action="store_true", help="print the policy that reading needs, and nothing else"
    )
    _add_answer(audit)
    _add_questions(audit)
    _add_members(audit)
    _add_stack(audit)


def _add_answer(audit: argparse.ArgumentParser) -> None:
    group = audit.add_argument_group("answer")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable answer on standard output")
    form.add_argument("--sarif", action="store_true", help="the answer as SARIF 2.1.0")
    form.add_argument("--junit", action="store_true", help="the answer as JUnit XML")
    group.add_argument(
        "--fail-on",
        choices=LEVELS,
        default=LEVELS[0],
        metavar="LEVEL",
        help=f"what is less grave does not fail: {', '.join(LEVELS)} (default: {LEVELS[0]})",
    )
    group.add_argument(
        "--watch",
        nargs="?",
        type=_interval,
        const=DEFAULT_WATCH_S,
        metavar="SECONDS",
        help=f"look again and again (every {DEFAULT_WATCH_S} s) and say what changed",
    )


def _add_questions(audit: argparse.ArgumentParser) -> None:
    group = audit.add_argument_group("what if", "nothing is changed in the account")
    group.add_argument(
        "--what-if",
        action="append",
        default=[],
        type=_change,
        metavar="CHANGE",
        help="audit the world after this change, and say what it does; several are made in turn",
    )
    group.add_argument(
        "--suggest",
        nargs="?",
        choices=(*PROFILES, EVERY_PROFILE),
        const=EVERY_PROFILE,
        metavar="PROFILE",
        help=f"the tightest rules that keep the mesh, as commands: for {', '.join(PROFILES)} or "
        f"{EVERY_PROFILE} one (default)",
    )


def _add_members(audit: argparse.ArgumentParser) -> None:
    who = audit.add_argument_group("any cluster", "running instances that all of these select")
    who.add_argument(
        "--tag", action="append", default=[], type=_tag, metavar="KEY=VALUE", help="they carry this tag"
    )
    who.add_argument("--vpc-id", nargs="+", default=[], metavar="VPC", help="they are in one of these VPCs")
    who.add_argument(
        "--security-group", nargs="+", default=[], metavar="SG", help="they carry one of these groups"
    )
    who.add_argument("--instance-ids", nargs="+", default=[], metavar="ID", help="they are these")
    who.add_argument(
        "--master-port", type=_port, default=None, metavar="PORT", help="port of torch's store (29500)"
    )
    who.add_argument(
        "--ephemeral-ports",
        type=_ports,
        default=None,
        metavar="FIRST-LAST",
        help="the nodes' net.ipv4.ip_local_port_range (32768-60999)",
    )


def _add_stack(audit: argparse.ArgumentParser) -> None:
    ours = audit.add_argument_group("the deployed stack")
    ours.add_argument("--who", action="store_true", help="who made each difference, by CloudTrail")
    ours.add_argument("--baseline", type=Path, metavar="FILE", help="reviewed exceptions, as JSON")
    ours.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write the differences there as exceptions; needs --reason and --expires",
    )
    ours.add_argument("--reason", metavar="TEXT", help="why they may be")
    ours.add_argument("--expires", type=_day, metavar="DAY", help="the last day of that, e.g. 2027-01-31")
    ours.add_argument(
        "--revert", action="store_true", help="bring back what the stack was told, after asking"
    )
    ours.add_argument("--yes", action="store_true", help="with --revert: do not ask")


def _tag(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, for example fullmesh:cluster=demo")
    return key, value


def _change(text: str) -> Change:
    from diagnosis.what_if_words import ChangeError, parse_change  # noqa: PLC0415 - not before it is needed

    try:
        return parse_change(text)
    except ChangeError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _ports(text: str) -> PortRange:
    from cluster.ports import PortRange  # noqa: PLC0415 - not before it is needed

    try:
        return PortRange.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST within 1-65535") from None


def _interval(text: str) -> float:
    from audit.watch import LEAST_S  # noqa: PLC0415 - not before it is needed

    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not LEAST_S <= value <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {LEAST_S} to 86400")
    return value


def _day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day such as 2027-01-31") from None
