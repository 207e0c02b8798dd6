"""`fullmesh audit --snapshot` end to end: the shared cases, and folders that are cut or odd."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from tests.cluster.world import ALLOW_ALL, World, cluster, from_group, two_subnets

CHECKOUT = Path(__file__).resolve().parents[2]
CASES = CHECKOUT.parent / "shared" / "cases" / "audit"
SELF = from_group("sg-mesh")
DEMO = ("--tag", "fullmesh:cluster=demo")


def audit(*arguments: str) -> tuple[int, Any]:
    """Exit status and parsed JSON of `fullmesh audit ... --json`."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "audit", *arguments, "--json"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "", done.stderr
    return done.returncode, json.loads(done.stdout)


def case_names() -> list[str]:
    return sorted(path.name for path in CASES.iterdir()) if CASES.is_dir() else ["absent"]


def triples(entries: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    return sorted((item["source"], item["destination"], item["ports"]) for item in entries)


@pytest.mark.parametrize("name", case_names())
def test_a_shared_case_comes_out_right(name: str) -> None:
    """Verdict, exit status, possible or not, blocked to the port, first cause, and who else gets in."""
    if not CASES.is_dir():
        pytest.skip(f"the shared cases are not beside the checkout ({CASES})")
    expected = json.loads((CASES / name / "expected.json").read_text(encoding="utf-8"))
    status, found = audit("--snapshot", str(CASES / name), *DEMO, "--master-port", "29500")
    assert found["mesh_possible"] is expected["mesh_possible"]
    assert triples(found["blocked"]) == triples(expected["blocked"])
    named = [{key: item[key] for key in ("protocol", "ports", "source")} for item in found["exposed"]]
    assert [item for item in expected["exposed"] if item not in named] == []
    assert [item for item in named if item not in expected["exposed"] + expected["exposed_optional"]] == []
    if expected["mesh_possible"] is None:
        outcome = (3, "UNKNOWN")
        assert (found["causes"], bool(found["candidates"] or found["unanswered"])) == ([], True)
        assert found["next_command"]
    elif expected["mesh_possible"] and not named:
        outcome = (0, "PASS")
        assert found["causes"] == []
    else:
        outcome = (1, "FAIL")
        assert [item["id"] for item in found["causes"][:1]] in (
            [[]] if expected["mesh_possible"] else [[cause] for cause in expected["acceptable_causes"]]
        )
    assert (status, found["verdict"]) == outcome
    assert all(item["reason"] for item in found["blocked"])


def folder(path: Path, world: World) -> Path:
    """The world's documents as files."""
    for name, document in world.documents().items():
        (path / f"{name}.json").write_text(json.dumps(document))
    return path


def cut(path: Path, name: str) -> None:
    file = path / f"{name}.json"
    text = file.read_text()
    file.write_text(text[: len(text) // 2])


def more(path: Path, name: str) -> None:
    """The document is one page of several, and its last entry stands on the next one."""
    file = path / f"{name}.json"
    ((key, entries),) = json.loads(file.read_text()).items()
    file.write_text(json.dumps({key: entries[:-1], "NextToken": "page-2"}))


def absent(path: Path, name: str) -> None:
    (path / f"{name}.json").unlink()


def another_kind(path: Path, name: str) -> None:
    (path / f"{name}.json").write_text("[1, 2]")


def with_acls(world: World) -> World:
    for name in sorted({item["SubnetId"] for item in world.subnets}):
        world.acl(f"acl-{name}", [name], [ALLOW_ALL], [ALLOW_ALL])
    return world


DAMAGES = (cut, more, absent, another_kind)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "one_subnet", "across"),
    [
        ("security-groups", None, None),
        ("network-acls", True, None),
        ("route-tables", True, True),
        ("subnets", True, True),
        ("network-interfaces", None, None),
        ("instances", None, None),
        ("vpcs", True, True),
    ],
)
def test_a_damaged_document_counts_as_far_as_the_answer_needs_it(
    tmp_path: Path,
    damage: Callable[[Path, str], None],
    name: str,
    one_subnet: bool | None,
    across: bool | None,
) -> None:
    """Inside one subnet nobody asks for ACLs; inside one VPC nobody asks for routes."""
    for shape, possible in ((cluster([SELF]), one_subnet), (two_subnets([SELF]), across)):
        path = folder(tmp_path, with_acls(shape))
        damage(path, name)
        _, found = audit("--snapshot", str(path), *DEMO)
        assert found["mesh_possible"] is possible, (name, found["unanswered"])
        assert found["causes"] == []
        if possible is None:
            assert (found["verdict"], bool(found["unanswered"]), bool(found["next_command"])) == (
                "UNKNOWN",
                True,
                True,
            )


def test_what_a_page_holds_is_true_whatever_follows(tmp_path: Path) -> None:
    """All members' interfaces stand on the first page: the mesh is told, who else there is is not."""
    path = folder(tmp_path, with_acls(cluster([SELF])))
    file = path / "network-interfaces.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "NextToken": "page-2"}))
    status, found = audit("--snapshot", str(path), *DEMO)
    assert (status, found["verdict"], found["mesh_possible"]) == (3, "UNKNOWN", True)
    assert "NextToken" in found["unanswered"][0]


def test_fields_that_nobody_knows_change_nothing(tmp_path: Path) -> None:
    """A newer API's fields, in the document and in every entry, are passed over."""
    world = with_acls(cluster([SELF]))
    for entries in (world.groups, world.interfaces, world.instances, world.subnets, world.acls, world.vpcs):
        for entry in entries:
            entry["Quantum"] = {"Entangled": [True, None, {"Deep": 1.5}]}
    path = folder(tmp_path, world)
    (path / "quantum-gates.json").write_text("{")
    status, found = audit("--snapshot", str(path), *DEMO)
    assert (status, found["verdict"], found["members"]) == (0, "PASS", ["i-0", "i-1", "i-2", "i-3"])


def test_an_empty_folder_is_unknown(tmp_path: Path) -> None:
    """Nothing was read: that is no PASS, and what to run is said."""
    status, found = audit("--snapshot", str(tmp_path), *DEMO)
    assert (status, found["verdict"], found["mesh_possible"]) == (3, "UNKNOWN", None)
    assert found["next_command"] == "aws ec2 describe-instances --output json > instances.json"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--snapshot", "nowhere", *DEMO), "nowhere is not a folder"),
        (("--snapshot", "."), "--tag KEY=VALUE"),
        (("--snapshot", ".", "--tag", "demo"), "KEY=VALUE"),
        (("--snapshot", ".", *DEMO, "--master-port", "0"), "1 to 65535"),
        (("--snapshot", ".", *DEMO, "--ephemeral-ports", "9-1"), "FIRST-LAST"),
    ],
)
def test_bad_usage_ends_with_status_2(arguments: tuple[str, ...], says: str) -> None:
    """What is wrong and what is allowed stands on standard error, and nothing on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "audit", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_the_terminal_names_cause_and_command(tmp_path: Path) -> None:
    """The report for people says what to run, in 80 columns."""
    path = folder(tmp_path, with_acls(cluster([from_group("sg-mesh", 29500, 29500)])))
    done = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--snapshot", str(path), *DEMO],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  sg-only-master-port\n")
    assert "aws ec2 authorize-security-group-ingress --group-id sg-mesh" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
