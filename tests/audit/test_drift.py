"""What stands against what the stack was told: nothing on an untouched stack, everything that was changed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.answer import Audit, audit_stack
from audit.difference import Meaning
from audit.documents import Documents
from audit.drift import our_stack
from audit.live import read_stack
from cluster.spec import ClusterSpec
from diagnosis.report import Verdict
from tests.audit.deployed import Account, running_account
from tests.stacks.conftest import SHAPES

CHECKOUT = Path(__file__).resolve().parents[2]
ZONE = "us-east-1b"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """An account for stacks of every shape."""
    with running_account(tmp_path_factory.mktemp("shapes")) as running:
        yield running


def audited(documents: Documents, **options: Any) -> Audit:
    return audit_stack(documents, our_stack(documents), **options)


def said(found: Audit) -> list[tuple[str, str, str]]:
    """(meaning, resource, attribute) of every difference."""
    return [
        (item.meaning.value, item.deviation.resource, item.deviation.attribute) for item in found.differences
    ]


# No capacity block: the lab sells none, so no instance of that shape would come.
DEPLOYED = {name: shape for name, shape in SHAPES.items() if shape.get("cluster__capacity") != "block"}


@pytest.mark.parametrize("shape", sorted(DEPLOYED))
def test_an_untouched_stack_has_no_drift(shapes: Account, shape: str) -> None:
    """In every port profile and shape, after the deploy and after an update: nothing, and all was read."""
    name = f"s{sorted(DEPLOYED).index(shape)}"
    context = dict(DEPLOYED[shape])
    if context.get("cluster__capacity") == "existing":
        context |= {
            "cluster__capacity_reservation_id": their_reservation(shapes),
            "cluster__availability_zone": ZONE,
        }
    for update in ({}, {"cluster__nodes": 6, "cluster__attempt": 2}):
        shapes.deploy(name, **{**context, **update})
        found = audited(read_stack(shapes.session, name))
        assert (said(found), found.unanswered, found.findings.exposed) == ([], (), ())
        assert (found.verdict, found.findings.mesh_possible) == (Verdict.PASS, True)


def their_reservation(account: Account) -> str:
    """One that somebody made for the fleet of the shape, with room for its update."""
    made = account.client("ec2").create_capacity_reservation(
        InstanceType=ClusterSpec().instance_type,
        InstancePlatform="Linux/UNIX",
        AvailabilityZone=ZONE,
        InstanceCount=12,
        InstanceMatchCriteria="targeted",
    )
    reservation_id: str = made["CapacityReservation"]["CapacityReservationId"]
    return reservation_id


@pytest.fixture(scope="module")
def documents(account: Account) -> Documents:
    return read_stack(account.session, "fullmesh")


def changed(documents: Documents, name: str, change: Any) -> Documents:
    """The documents with one of them changed in place by a function."""
    copy = json.loads(json.dumps(dict(documents.documents), default=lambda value: value.isoformat()))
    change(copy[name])
    if name == "security-groups":
        copy["security-group-rules"] = None  # or the two would disagree
    return dataclasses.replace(documents, documents=copy)


def without(documents: Documents, *names: str) -> Documents:
    kept = {name: item for name, item in documents.documents.items() if name not in names}
    return dataclasses.replace(documents, documents=kept)


def members_group(document: Json) -> Json:
    (found,) = (group for group in document["SecurityGroups"] if group["GroupName"] != "default")
    return dict_of(found)


def dict_of(value: Any) -> Json:
    assert isinstance(value, dict)
    return value


def self_rule(group: Json, way: str = "IpPermissions") -> Json:
    (found,) = (rule for rule in group[way] if rule["UserIdGroupPairs"])
    return dict_of(found)


def pairs(found: Audit, place: int = 0) -> set[tuple[str, str]]:
    return {(source, destination) for source, destination, _ in found.differences[place].pairs}


def test_a_saved_picture_has_the_same_drift(documents: Documents, tmp_path: Path) -> None:
    """A folder holds the stack too: no account and no options are needed to tell its drift."""
    drifted = changed(
        documents, "security-groups", lambda d: self_rule(members_group(d)).update(ToPort=40000)
    )
    drifted.save(tmp_path)
    live, saved = audited(drifted), audited(Documents.from_directory(tmp_path))
    assert live.document() == saved.document()
    assert said(live) == [("breaks-new-connections-only", said(live)[0][1], "ingress rule")]


def test_a_narrowed_rule_is_one_difference_with_its_ports(documents: Documents) -> None:
    """The rule and its remains are one difference, and every pair is named with the ports that it lost."""
    found = audited(
        changed(documents, "security-groups", lambda d: self_rule(members_group(d)).update(ToPort=40000))
    )
    (one,) = found.differences
    assert (one.deviation.logical_id[:9], one.meaning) == ("MembersIn", Meaning.BREAKS_NEW_CONNECTIONS)
    assert {ports for _, _, ports in one.pairs} == {"40001-60999"}
    assert len(pairs(found)) == 12
    assert (found.verdict, found.findings.mesh_possible) == (Verdict.FAIL, False)
    assert found.findings.causes[0].id == "sg-ports-too-narrow"


def revoke(document: Json) -> None:
    group = members_group(document)
    group["IpPermissions"].remove(self_rule(group))


def test_a_rule_that_another_one_stands_in_for_breaks_nothing(documents: Documents) -> None:
    """The self rule is gone, but a rule for the VPC's range lets the same pairs pass: it only weakens."""

    def replace(document: Json) -> None:
        revoke(document)
        ranges = [{"CidrIp": "10.20.0.0/16"}]
        members_group(document)["IpPermissions"].append(
            {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535, "IpRanges": ranges}
        )

    found = audited(changed(documents, "security-groups", replace))
    assert [item[0] for item in said(found)] == ["weakens", "weakens"]
    assert found.findings.mesh_possible is True


def test_a_rule_that_others_stand_in_for_breaks_what_they_leave(documents: Documents) -> None:
    """Of a revoked rule only those ports are broken that no other rule lets pass."""

    def narrow(document: Json) -> None:
        revoke(document)
        ranges = [{"CidrIp": "10.20.0.0/16"}]
        for first, last in ((0, 40000), (40001, 50000)):
            members_group(document)["IpPermissions"].append(
                {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "IpRanges": ranges}
            )

    found = audited(changed(documents, "security-groups", narrow))
    broken = [
        (item.deviation.actual, {p for _, _, p in item.pairs}) for item in found.differences if item.pairs
    ]
    assert broken == [(None, {"50001-60999"})]


def test_a_rule_for_a_list_that_nobody_read_is_undetermined(documents: Documents) -> None:
    """Who is in a prefix list was not told: neither fine nor broken."""

    def admit(document: Json) -> None:
        members_group(document)["IpPermissions"].append(
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "PrefixListIds": [{"PrefixListId": "pl-1"}]}
        )

    found = audited(changed(documents, "security-groups", admit))
    assert [item[0] for item in said(found)] == ["undetermined"]
    assert (found.verdict, found.exit_status) == (Verdict.UNKNOWN, 3)


@pytest.mark.parametrize(
    "name",
    [
        "security-groups",
        "network-acls",
        "route-tables",
        "subnets",
        "network-interfaces",
        "instances",
        "vpcs",
        "vpc-attributes",
        "vpc-endpoints",
        "flow-logs",
        "internet-gateways",
        "launch-template-versions",
        "auto-scaling-groups",
        "placement-groups",
        "volumes",
        "nodes",
        "stack-template",
        "stack-resources",
        "stacks",
    ],
)
def test_what_was_not_read_is_never_in_sync(documents: Documents, name: str) -> None:
    """Each document is needed, no difference is made up for it, and the reason stands in the answer."""
    found = audited(
        dataclasses.replace(without(documents, name), problems={name: f"not permitted: of {name}"})
    )
    assert (found.verdict, said(found)) == (Verdict.UNKNOWN, [])
    assert any(f"not permitted: of {name}" in line for line in found.unanswered)


@pytest.mark.parametrize("name", ["stack-template", "stack-resources", "stacks"])
def test_a_stack_that_is_cut_off_leaves_its_members_unknown(
    documents: Documents, tmp_path: Path, name: str
) -> None:
    """A folder names no cluster besides: nobody says that there are no members, or no stack."""
    documents.save(tmp_path)
    file = tmp_path / f"{name}.json"
    file.write_text(file.read_text()[:500])
    done = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--snapshot", str(tmp_path), "--json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "")
    found = json.loads(done.stdout)
    assert (found["verdict"], found["mesh_possible"], found["drift"]) == ("UNKNOWN", None, [])
    start = f"{name}.json is cut off or not JSON"
    assert [line.partition(start)[0] for line in found["unanswered"]] == [
        "who is a member cannot be told: ",
        "drift cannot be told: ",
    ]


@pytest.mark.parametrize("name", ["security-group-rules", "identity", "prefix-list-entries"])
def test_what_nothing_depends_on_may_be_missing(documents: Documents, name: str) -> None:
    """Rules' ids, the caller's name and lists that no rule names change no answer."""
    found = audited(without(documents, name))
    assert (found.verdict, said(found), found.unanswered) == (Verdict.PASS, [], ())


def test_a_stack_in_the_middle_of_an_update_is_not_compared(documents: Documents) -> None:
    """What differs may be the update itself."""

    def begin(document: Json) -> None:
        document["Stacks"][0]["StackStatus"] = "UPDATE_IN_PROGRESS"

    found = audited(changed(documents, "stacks", begin))
    assert (found.verdict, said(found)) == (Verdict.UNKNOWN, [])
    assert "the stack is in UPDATE_IN_PROGRESS" in found.unanswered[-1]


def test_a_vpc_that_is_gone_breaks_the_mesh(documents: Documents) -> None:
    """A half-deleted VPC: what is gone is told as gone, and what cannot be told as unknown."""
    gone: Json = {
        "vpcs": {"Vpcs": []},
        "subnets": {"Subnets": []},
        "security-groups": {"SecurityGroups": []},
        "route-tables": {"RouteTables": []},
        "network-acls": {"NetworkAcls": []},
        "network-interfaces": {"NetworkInterfaces": []},
        "instances": {"Reservations": []},
        "vpc-attributes": {"VpcAttributes": []},
        "vpc-endpoints": {"VpcEndpoints": []},
        "auto-scaling-groups": {"AutoScalingGroups": []},
    }
    found = audited(dataclasses.replace(documents, documents={**documents.documents, **gone}))
    assert found.verdict is Verdict.FAIL
    grave = {attribute for meaning, _, attribute in said(found) if meaning == "breaks-mesh"}
    assert grave == {"existence"}
    assert sum(meaning == "breaks-mesh" for meaning, _, _ in said(found)) == 3  # VPC, subnet, fleet


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (Meaning.COSMETIC, 1),
        (Meaning.WEAKENS, 0),
        (Meaning.BREAKS_MESH, 0),
    ],
)
def test_a_level_says_from_where_on_it_fails(documents: Documents, level: Meaning, expected: int) -> None:
    """A tag is a difference; whoever asks for graver ones is not failed by it."""

    def tag(document: Json) -> None:
        members_group(document)["Tags"].append({"Key": "team", "Value": "a"})

    found = audited(changed(documents, "security-groups", tag), fail_on=level)
    assert (found.exit_status, [item[0] for item in said(found)]) == (expected, ["cosmetic"])


def test_tags_of_aws_are_no_drift(documents: Documents) -> None:
    """Keys that begin with aws: can be set by AWS alone."""

    def tag(document: Json) -> None:
        members_group(document)["Tags"].append({"Key": "aws:map-migrated", "Value": "x"})

    assert said(audited(changed(documents, "security-groups", tag))) == []


def rows(documents: Documents, ports: tuple[int, int], **more: Any) -> Documents:
    """As if each member had left a row of the deploy; member 0's listeners come from these ports."""
    ids = [item["InstanceId"] for item in documents.instances()]
    nodes = [
        {
            "MemberId": each,
            "Registered": True,
            "Joined": "",
            "Key": "k",
            "Row": {"host": {"local_port_range": {"first": 32768, "last": 60999}}},
        }
        for each in ids
    ]
    nodes[0]["Row"] = {"host": {"local_port_range": {"first": ports[0], "last": ports[1]}}}
    nodes[0].update(more)
    return dataclasses.replace(documents, documents={**documents.documents, "nodes": {"Nodes": nodes}})


def test_another_port_range_on_a_node_is_judged_by_the_rules(documents: Documents) -> None:
    """Where all TCP passes it only weakens; where the rules end before it, pairs to that node break."""
    first = documents.instances()[0]["InstanceId"]
    found = audited(rows(documents, (1024, 20000)))
    assert said(found) == [("weakens", first, "net.ipv4.ip_local_port_range")]
    narrow = changed(
        rows(documents, (61000, 65000)),
        "security-groups",
        lambda d: self_rule(members_group(d)).update(ToPort=60999),
    )
    found = audited(narrow)
    one = next(item for item in found.differences if item.deviation.resource == first)
    assert one.meaning is Meaning.BREAKS_NEW_CONNECTIONS
    assert {(destination, ports) for _, destination, ports in one.pairs} == {(first, "61000-65000")}
    assert len(one.pairs) == 3


@pytest.mark.parametrize(("joined", "meaning"), [("", "weakens"), ("run-check-600", "cosmetic")])
def test_a_member_that_came_after_the_proof_is_told(documents: Documents, joined: str, meaning: str) -> None:
    """Nobody has proven it, or a later check has."""
    found = audited(rows(documents, (32768, 60999), Registered=False, Joined=joined))
    assert said(found) == [(meaning, documents.instances()[0]["InstanceId"], "proof")]
