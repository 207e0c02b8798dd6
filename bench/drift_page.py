"""`python -m bench.drift_page`: the changes of the table under `cdk diff`, `cdk drift` and `fullmesh audit`.

Writes docs/drift.md. Needs the control plane alone: nobody of them looks at a node. Takes twenty minutes;
with `--live` it measures the column of `cdk diff -c live=true` alone and keeps the others as they stand.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from audit.answer import Audit, audit_stack
from audit.difference import Deviation
from audit.drift import our_stack
from audit.live import read_stack
from bench.changes.change import Change
from bench.changes.hands import Hands
from bench.changes.table import CHANGES
from lab import control_plane, toolchain

PAGE = Path(__file__).resolve().parents[1] / "docs" / "drift.md"
REGION = "us-east-1"
IMAGE = "cluster.ami_id=ami-0123456789abcdef0"
CLUSTERS = {
    "spread": ("cluster.subnets=2", "cluster.placement=spread"),
    "reserved": ("cluster.capacity=reservation", "cluster.vpc_cidr=10.30.0.0/16"),
}
NOTE = re.compile(r"^(ERROR|WARNING) live: (?!not looked at).*\n +([^ \n]+)", re.MULTILINE)
HANDLE_HOST = f"http://{control_plane.DEFAULT_PUBLIC_HOST}:{control_plane.DEFAULT_PUBLIC_PORT}"

HEAD = """\
# What sees a change

Written by `python -m bench.drift_page`; do not edit by hand. Every change below was made with the AWS API
on a stack that the CDK had deployed, then each of these was run:

- `cdk diff --fail` compares the template of the code with the deployed template. It never looks at what
  stands, so it sees none of these.
- `cdk diff --fail -c live=true`: the app audits while it synthesises, so `cdk diff` shows each difference at
  the construct that it belongs to, and ends with status 1. A warning (a tag, a description) alone does not.
- `cdk drift --fail` is CloudFormation's drift detection: it compares those properties of each resource
  that the template sets. What nobody wrote into the template (another group on an interface, an entry of
  the default network ACL, an instance) it cannot see, and it does not say what a difference means.
- `fullmesh audit` compares the deployed template with the account, instances and interfaces included, and
  works out what each difference does.

`cdk diff` and `cdk drift` are the real CLI. Behind it stands the lab's CloudFormation, which knows how to
compare fewer types of resources than AWS's: where it compared nothing, the table says so, for there an
account may well see the change.
"""


Row = tuple[str, str, str, str]
"""What `cdk diff`, `cdk diff -c live=true`, `cdk drift` and `fullmesh audit` said of one change."""

NOTHING = "nothing"


class Bench:
    """A control plane that clusters are deployed on.

    environment: points the CDK at it.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._numbers = itertools.count(1)
        self.environment = toolchain.environment(url, REGION)
        self.session = boto3.Session(
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the control plane takes any
            region_name=REGION,
        )

    def client(self, service: str) -> Any:
        return self.session.client(service, endpoint_url=self._url)

    def cdk(self, name: str, *arguments: str) -> toolchain.CdkResult:
        """A CDK command on the assembly that was deployed."""
        assembly = str(self._folder / name)
        return toolchain.cdk([*arguments, "--app", assembly], self.environment)

    def deploy(self, kind: str) -> str:
        """Deploy a fresh cluster of a kind; returns its name."""
        name = f"{kind}-{next(self._numbers)}"
        context = [f"cluster.name={name}", IMAGE, *CLUSTERS[kind]]
        arguments = ["deploy", "--all", *(word for item in context for word in ("-c", item))]
        result = toolchain.cdk(arguments, self.environment, output_dir=self._folder / name)
        if result.status != 0:
            raise RuntimeError(f"{name} was not deployed:\n{result.output[-3000:]}")
        if self.differs(name) or self.drifted(name) or self.audited(name).differences:
            raise RuntimeError(f"{name}: a difference on an untouched stack")
        return name

    def signal_verdicts(self) -> None:
        """Be the nodes: signal PASS to every wait condition's handle, for as long as the process lives."""
        cloudformation, signalled = self.client("cloudformation"), set()
        while True:
            with contextlib.suppress(Exception):  # a stack that is not there yet, or just now changes
                for stack in cloudformation.describe_stacks()["Stacks"]:
                    name = stack["StackName"]
                    for item in cloudformation.describe_stack_resources(StackName=name)["StackResources"]:
                        handle = item.get("PhysicalResourceId", "")
                        if handle.startswith(HANDLE_HOST) and handle not in signalled:
                            signalled.add(handle)
                            self._signal(handle)
            time.sleep(0.5)

    def _signal(self, handle: str) -> None:
        document = {"Status": "SUCCESS", "Reason": "", "UniqueId": "verdict", "Data": ""}
        request = urllib.request.Request(  # noqa: S310 - the control plane's own address
            self._url + handle[len(HANDLE_HOST) :],
            data=json.dumps(document).encode(),
            method="PUT",
            headers={"Content-Type": ""},
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()

    def audited(self, name: str) -> Audit:
        documents = read_stack(_At(self.session, self._url), name)
        return audit_stack(documents, our_stack(documents, name))

    def drifted(self, name: str) -> tuple[str, ...]:
        """Logical ids that `cdk drift` names."""
        result = self.cdk(name, "drift", name, "--fail")
        found = tuple(sorted(set(re.findall(r"^\[[~+-]\] AWS::\S+ \S+ (\S+)", result.output, re.MULTILINE))))
        if bool(found) != (result.status == 1):
            raise RuntimeError(f"cdk drift ended with {result.status}:\n{result.output[-3000:]}")
        return found

    def unchecked(self, name: str, found: list[Deviation]) -> tuple[str, ...]:
        """Types of the stack's own resources among these that the last drift detection left out."""
        cloudformation = self.client("cloudformation")
        resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return tuple(
            sorted(
                {
                    item["ResourceType"]
                    for item in resources
                    for deviation in found
                    if item["LogicalResourceId"] == deviation.logical_id
                    and (item["PhysicalResourceId"] == deviation.resource or "oute" in item["ResourceType"])
                    and item["DriftInformation"]["StackResourceDriftStatus"] == "NOT_CHECKED"
                }
            )
        )

    def live(self, name: str, kind: str) -> str:
        """What `cdk diff --fail -c live=true` shows: at which constructs, and with which status it ends.

        Raises:
            RuntimeError: its exit status does not fit what it shows.
        """
        context = [f"cluster.name={name}", IMAGE, *CLUSTERS[kind], "live=true"]
        arguments = ["diff", name, "--fail", *(word for item in context for word in ("-c", item))]
        result = toolchain.cdk(arguments, self.environment, output_dir=self._folder / f"{name}-live")
        found = {(level.lower(), path) for level, path in NOTE.findall(result.output)}
        errors = sorted(path for level, path in found if level == "error")
        warnings = sorted(path for level, path in found if level == "warning" and path not in errors)
        if bool(errors) != (result.status == 1):
            raise RuntimeError(f"cdk diff -c live=true ended with {result.status}:\n{result.output[-3000:]}")
        said = [f"error at {', '.join(_here(path) for path in errors)}"] if errors else []
        said += [f"warning at {', '.join(_here(path) for path in warnings)}"] if warnings else []
        return "; ".join(said) or NOTHING

    def differs(self, name: str) -> bool:
        """Whether `cdk diff` ends as if something differed."""
        return self.cdk(name, "diff", name, "--fail").status != 0


class _At:
    """A session whose clients speak to one address."""

    def __init__(self, session: boto3.Session, url: str) -> None:
        self._session, self._url = session, url
        self.region_name = session.region_name

    def client(self, service: str, **options: Any) -> Any:
        return self._session.client(service, endpoint_url=self._url, **options)


@contextlib.contextmanager
def running() -> Iterator[Bench]:
    """A control plane that ends with the context."""
    with tempfile.TemporaryDirectory(prefix="fullmesh-drift-") as name, socket.socket() as probe:
        folder = Path(name)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        process = control_plane.start(port, folder / "control-plane.log", folder / "scratch")
        try:
            url = f"http://127.0.0.1:{port}"
            control_plane.wait_healthy(url, 60, process)
            bench = Bench(url, folder)
            threading.Thread(target=bench.signal_verdicts, daemon=True).start()
            if toolchain.bootstrap(bench.environment, REGION).status != 0:
                raise RuntimeError("cdk bootstrap failed")
            yield bench
        finally:
            process.terminate()
            process.wait(10)


def look(bench: Bench, change: Change, name: str, kind: str, before: Row | None) -> Row:
    """Make one change on an untouched cluster, and ask all; only the live diff where a row is there."""
    with change.make(Hands(bench.client, name)):
        live = bench.live(name, kind)
        if before is not None:
            return (before[0], live, *before[2:])
        differences = bench.audited(name).differences
        said = {f"{item.meaning.value}: {_words(item.deviation.attribute)}" for item in differences}
        diff, drift = bench.differs(name), bench.drifted(name)
        unchecked = () if drift else bench.unchecked(name, [item.deviation for item in differences])
    left_out = f"({', '.join(unchecked)}: not compared by the lab)" if unchecked else NOTHING
    return (
        "something" if diff else NOTHING,
        live,
        ", ".join(drift) or left_out,
        "; ".join(sorted(said)) or NOTHING,
    )


def look_at_all(bench: Bench, before: dict[str, Row]) -> Iterator[tuple[Change, Row]]:
    """Every change on a cluster in which nothing differs; where one leaves something, a new one follows."""
    clusters: dict[str, str] = {}
    for change in CHANGES:
        kind = "reserved" if change.needs == "reservation" else "spread"
        if kind not in clusters:
            clusters[kind] = bench.deploy(kind)
        yield change, look(bench, change, clusters[kind], kind, before.get(change.title))
        # A rule that was revoked and made again is another rule to CloudFormation.
        if change.lasts or (change.title not in before and bench.drifted(clusters[kind])):
            del clusters[kind]


def _here(path: str) -> str:
    """A construct's path inside its stack; the stack itself where it stands for what has no construct."""
    return path.partition("/")[2] or "the stack"


def _words(attribute: str) -> str:
    """An attribute without the ids of this run."""
    return re.sub(r" of i-[0-9a-f]+| sg-[0-9a-f]+$", "", attribute)


def page(seen: dict[str, Row]) -> str:
    """The whole page. seen: by the change's title."""
    lines = [
        HEAD,
        _counts(list(seen.values())),
        "",
        "| change | cdk diff | cdk diff -c live=true | cdk drift | fullmesh audit |",
        "|---|---|---|---|---|",
        *(f"| {title} | {' | '.join(row)} |" for title, row in seen.items()),
    ]
    return "\n".join(lines) + "\n"


def rows(text: str) -> dict[str, Row]:
    """The rows of a page, by the change's title."""
    found: dict[str, Row] = {}
    for line in text.splitlines():
        cells = [item.strip() for item in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) in (4, 5) and cells[0] != "change":
            title, diff, *live, drift, audit = cells
            found[title] = (diff, live[0] if live else "", drift, audit)
    return found


def _counts(seen: list[Row]) -> str:
    diff, live, drift, audit = (
        sum(cell != NOTHING and not cell.startswith("(") for cell in column) for column in zip(*seen)
    )
    left_out = sum(row[2].startswith("(") for row in seen)
    return (
        f"Of {len(seen)} changes `cdk diff` sees {diff}, with `-c live=true` {live}, `cdk drift` {drift} "
        f"(the lab cannot tell of {left_out} more), `fullmesh audit` {audit}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.drift_page", description=__doc__)
    parser.add_argument("--live", action="store_true", help="only the column of cdk diff -c live=true")
    before = rows(PAGE.read_text(encoding="utf-8")) if parser.parse_args().live else {}
    seen: dict[str, Row] = {}
    with running() as bench:
        for change, row in look_at_all(bench, before):
            seen[change.title] = row
            sys.stderr.write(f"{change.id}: {row}\n")
    PAGE.write_text(page(seen), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
