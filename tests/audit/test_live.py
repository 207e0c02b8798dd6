"""Reading an account: everything, or the reason for each document that is missing."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audit import account as audit_account
from audit import prefix_lists, readings
from audit.documents import NAMES, Documents
from audit.live import read_selected, read_stack
from audit.members import Selection
from audit.template import deployed_stack
from cluster.snapshot import DOCUMENTS
from tests.audit.deployed import Account, Session, ec2_error, query_error, refusing
from tests.lab.plane import REGION
from tests.probe.aws_server import Answer

CHECKOUT = Path(__file__).resolve().parents[2]
DEMO = Selection(tags=(("fullmesh:cluster", "fullmesh"),))


def test_a_stack_is_read_whole(account: Account) -> None:
    """Every document there is, none with a problem, and the nodes' configuration from the template."""
    found = read_stack(account.session, "fullmesh")
    assert sorted(found.documents) == sorted(NAMES)
    assert ({name: found.problem(name) for name in NAMES if found.problem(name)}, found.denied) == ({}, ())
    stack = deployed_stack(found, "fullmesh")
    assert stack is not None
    assert stack.config is not None
    assert (stack.config.nodes, stack.config.master_port, stack.region) == (4, 29500, REGION)
    assert len(found.snapshot().running_with_tag("fullmesh:cluster", "fullmesh")) == 4


def test_what_was_saved_is_read_back(account: Account, tmp_path: Path) -> None:
    """The same documents, times as text, and the reasons for what is missing."""
    found = read_stack(account.session, "fullmesh")
    found = Documents(
        documents={name: item for name, item in found.documents.items() if name != "volumes"},
        problems={"volumes": "not permitted: ec2:DescribeVolumes"},
        denied=("ec2:DescribeVolumes",),
    )
    found.save(tmp_path)
    back = Documents.from_directory(tmp_path)
    as_text = json.loads(json.dumps(dict(found.documents), default=lambda value: value.isoformat()))
    assert back.documents == as_text
    assert (back.problem("volumes"), back.denied) == (found.problem("volumes"), found.denied)
    assert back.snapshot() == Documents(documents=as_text).snapshot()


def test_a_picture_replaces_an_older_one(tmp_path: Path) -> None:
    """A document that this time was not read must not be taken from the last time."""
    Documents(documents={"volumes": {"Volumes": []}}).save(tmp_path)
    Documents(problems={"volumes": "not permitted: ec2:DescribeVolumes"}).save(tmp_path)
    assert Documents.from_directory(tmp_path).problem("volumes") == "not permitted: ec2:DescribeVolumes"


def test_a_selection_is_read_with_what_is_around_it(account: Account) -> None:
    """The eight documents, of the members' VPC alone."""
    found = read_selected(account.session, DEMO)
    snapshot = found.snapshot()
    assert len(DEMO.members(snapshot).ids) == 4
    assert {group.vpc_id for group in snapshot.security_groups} == {account.outputs()["VpcId"]}
    tables = (snapshot.network_acls, snapshot.route_tables, snapshot.subnets, snapshot.interfaces)
    assert all(table.complete and len(table) for table in tables)


NOT_IN_THIS_STACK = (readings.PREFIX_LISTS, readings.RESERVATIONS)
EC2_READINGS = [reading for reading in readings.OF_EC2 if reading not in NOT_IN_THIS_STACK]
OTHERS = [readings.GROUPS, readings.STACKS, readings.STACK_RESOURCES, readings.STACK_TEMPLATE]


@pytest.mark.parametrize("reading", [*EC2_READINGS, *OTHERS], ids=lambda reading: reading.action)
def test_a_missing_permission_is_named(account: Account, reading: readings.Reading) -> None:
    """The document is absent for that reason, and its table is unknown, never empty."""
    action = reading.action.partition(":")[2]
    refused = ec2_error("UnauthorizedOperation") if reading.service == "ec2" else query_error("AccessDenied")
    with refusing(account, lambda asked, _: refused if asked == action else None) as session:
        found = read_stack(session, "fullmesh")
    assert found.denied == (reading.action,)
    assert found.problem(reading.name) == f"not permitted: {reading.action}"
    assert not found.has(reading.name)


def test_a_missing_permission_on_the_rows_is_named(account: Account) -> None:
    """S3 refuses with a document of its own."""
    refused = Answer(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")
    with refusing(account, lambda asked, _: refused if asked == "ListObjectsV2" else None) as session:
        found = read_stack(session, "fullmesh")
    assert (found.denied, found.problem("nodes")) == (("s3:ListBucket",), "not permitted: s3:ListBucket")


def test_throttling_is_waited_for(account: Account) -> None:
    """Two refusals for too many calls, then the answer: nothing is missing."""
    slow = ec2_error("RequestLimitExceeded", 503)
    with refusing(account, lambda asked, n: slow if asked == "DescribeVpcs" and n < 2 else None) as session:
        found = read_stack(session, "fullmesh")
    assert (found.problems, len(found.entries("vpcs"))) == ({}, 1)


def test_throttling_without_end_is_told(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the retries are used up the document is unknown."""
    patience = audit_account.PATIENCE.merge(type(audit_account.PATIENCE)(retries={"total_max_attempts": 2}))
    monkeypatch.setattr(audit_account, "PATIENCE", patience)
    slow = ec2_error("RequestLimitExceeded", 503)
    with refusing(account, lambda asked, _: slow if asked == "DescribeVpcs" else None) as session:
        found = read_stack(session, "fullmesh")
    told = "ec2:DescribeVpcs was throttled until the retries were used up (RequestLimitExceeded)"
    assert found.problem("vpcs").startswith(told)


def test_expired_credentials_end_the_reading(account: Account) -> None:
    """Nothing is asked twice with a token that AWS has refused."""
    asked: list[str] = []

    def fault(action: str, _: int) -> Answer:
        asked.append(action)
        return query_error("ExpiredToken")

    with refusing(account, fault) as session:
        found = read_stack(session, "fullmesh")
    assert found.documents == {}
    assert "the credentials have expired (ExpiredToken)" in found.problem("identity")
    assert found.problem("vpcs").startswith("the stack's VPC is not known")
    assert len(asked) <= 4  # those that were on their way side by side


def test_another_region_holds_no_such_stack(account: Account) -> None:
    """What is missing is the stack, and where one looked is said."""
    found = read_stack(type(account.session)(account.plane.url, "eu-north-1"), "fullmesh")
    assert found.problem("stacks").startswith("there is no stack fullmesh in eu-north-1; deploy it, or look")
    assert found.problem("network-acls") == "the stack's VPC is not known"
    assert found.entries("instances") == []


def test_an_address_that_nobody_answers_at_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that cannot be reached is not asked again."""
    patience = audit_account.PATIENCE.merge(type(audit_account.PATIENCE)(retries={"total_max_attempts": 1}))
    monkeypatch.setattr(audit_account, "PATIENCE", patience)
    found = read_selected(Session("http://127.0.0.1:9"), DEMO)
    assert f"ec2 in {REGION} did not answer" in found.problem("instances")


def test_the_policy_allows_exactly_what_is_called(account: Account) -> None:
    """Every call of a reading is in the policy, and it allows nothing that changes anything."""
    actions: set[str] = set()
    for statement in readings.iam_policy("fullmesh")["Statement"]:
        listed = statement["Action"]
        actions.update([listed] if isinstance(listed, str) else listed)
    called: set[str] = set()
    names = {action.partition(":")[2]: action for action in actions}

    def note(action: str, _: int) -> None:
        called.add(action)

    with refusing(account, note) as session:
        read_stack(session, "fullmesh")
    called = {"ListBucket" if name == "ListObjectsV2" else name for name in called} - {"GetCallerIdentity"}
    assert called - set(names) == set()
    reads = ("Describe", "Get", "List", "Lookup")
    assert all(name.startswith(reads) for name in names)


def run(account: Account, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", "audit", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **account.plane.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_judges_an_account_and_saves_what_it_saw(account: Account, tmp_path: Path) -> None:
    """Live and from the folder it saved the answer is the same."""
    where = str(tmp_path / "picture")
    tag = ("--tag", "fullmesh:cluster=fullmesh", "--json")
    live = run(account, *tag, "--save-snapshot", where)
    assert (live.returncode, live.stderr) == (0, "")
    saved = run(account, *tag, "--snapshot", where)
    assert json.loads(saved.stdout) == json.loads(live.stdout)
    eight = {f"{name}.json" for name in DOCUMENTS}
    assert eight < {item.name for item in Path(where).iterdir()}
    assert json.loads(live.stdout)["mesh_possible"] is True


def test_lists_that_rules_and_routes_name_are_read() -> None:
    """All but those of gateway endpoints, which hold the public addresses of a service."""
    named = {"PrefixListIds": [{"PrefixListId": "pl-rule"}]}
    groups = {"SecurityGroups": [{"IpPermissions": [named], "IpPermissionsEgress": []}]}
    routes = [
        {"DestinationPrefixListId": "pl-route", "TransitGatewayId": "tgw-1"},
        {"DestinationPrefixListId": "pl-s3", "GatewayId": "vpce-1"},
        {"DestinationCidrBlock": "10.0.0.0/8", "GatewayId": "local"},
    ]
    assert prefix_lists.named(groups, {"RouteTables": [{"Routes": routes}]}) == ["pl-route", "pl-rule"]


def test_a_list_that_a_change_names_is_read_besides(account: Account) -> None:
    """Its entries are there then; one that cannot be read leaves the documents as they are."""
    ec2 = account.client("ec2")
    made = ec2.create_managed_prefix_list(
        PrefixListName="offices",
        MaxEntries=2,
        AddressFamily="IPv4",
        Entries=[{"Cidr": "203.0.113.0/24"}],
    )["PrefixList"]["PrefixListId"]
    before = read_selected(account.session, DEMO)
    found = prefix_lists.with_lists(account.session, before, [made])
    assert found.snapshot().prefix_lists == {made: (ipaddress.ip_network("203.0.113.0/24"),)}
    again = prefix_lists.with_lists(account.session, found, [made])
    assert again is found
    with refusing(account, lambda action, _: ec2_error("UnauthorizedOperation")) as session:
        assert prefix_lists.with_lists(session, before, [made]) is before


def test_the_policy_is_printed(account: Account) -> None:
    """`--iam-policy` needs no account."""
    done = run(account, "--iam-policy")
    document: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, document) == (0, readings.iam_policy("fullmesh"))
