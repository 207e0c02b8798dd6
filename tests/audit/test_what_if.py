"""`fullmesh audit --what-if` and `--suggest` end to end: on folders, and beside the same change made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagnosis.prose import WIDTH, _shell_words
from tests.audit.test_cases import CHECKOUT, DEMO, SELF, audit, folder, with_acls
from tests.cluster.world import cluster, from_cidr, from_group, two_subnets

WORLD = {"protocol": "tcp", "ports": "22", "source": "0.0.0.0/0", "instances": ["i-0"]}


def saved(path: Path, *more: Any) -> str:
    """A folder of four members; member 0 has a public address."""
    world = with_acls(cluster([SELF, *more]))
    world.interfaces[0]["Association"] = {"PublicIp": "198.51.100.9"}
    world.route("rtb-vpc-1", "0.0.0.0/0", "igw-1")
    return str(folder(path, world))


def said(path: str, *arguments: str) -> tuple[int, str, str]:
    """Exit status and both streams, for people."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--snapshot", path, *DEMO, *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_answer_is_that_of_the_world_after_the_change(tmp_path: Path) -> None:
    """Status, verdict, causes and pairs are those after; `what_if` holds both worlds and what differs."""
    path = saved(tmp_path)
    status, found = audit("--snapshot", path, *DEMO, "--what-if", "revoke sg-mesh tcp 0-65535 from self")
    assert (status, found["verdict"], found["mesh_possible"]) == (1, "FAIL", False)
    assert [item["id"] for item in found["causes"]] == ["sg-no-self-ingress"]
    told = found["what_if"]
    assert told["changed_in_account"] is False
    assert told["changes"] == [
        {
            "change": "revoke sg-mesh ingress tcp 0-65535 from sg-mesh",
            "command": "aws ec2 revoke-security-group-ingress --group-id sg-mesh --ip-permissions "
            "'IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{GroupId=sg-mesh}]'",
            "no_op": False,
            "because": "",
            "notes": [],
        }
    ]
    assert told["before"] == {"verdict": "PASS", "mesh_possible": True, "blocked": [], "exposed": []}
    assert told["after"] == {key: found[key] for key in ("verdict", "mesh_possible", "blocked", "exposed")}
    pairs = {(item["source"], item["destination"], item["ports"]) for item in told["newly_blocked"]}
    names = [f"i-{n}" for n in range(4)]
    ports = ("29500", "32768-60999")
    assert pairs == {(a, b, p) for a in names for b in names if a != b for p in ports}
    assert (told["newly_open"], told["newly_exposed"], told["no_longer_exposed"]) == ([], [], [])
    assert told["established_connections"] == "go-on"


def test_changes_are_made_in_turn_and_told_one_by_one(tmp_path: Path) -> None:
    """The second one sees the world after the first; what they do together is told once."""
    status, found = audit(
        "--snapshot",
        saved(tmp_path, from_cidr("0.0.0.0/0", 22, 22)),
        *DEMO,
        "--what-if",
        "authorize sg-mesh tcp 22 from 203.0.113.0/24",
        "--what-if",
        "revoke sg-mesh tcp 22 from 0.0.0.0/0",
        "--what-if",
        "revoke sg-mesh tcp 22 from 203.0.113.0/24",
    )
    told = found["what_if"]
    assert (status, told["before"]["verdict"], told["after"]["verdict"]) == (0, "FAIL", "PASS")
    assert [item["no_op"] for item in told["changes"]] == [True, False, False]
    assert told["changes"][0]["because"] == ("the same is allowed by sg-mesh ingress tcp 22 from 0.0.0.0/0")
    assert (told["no_longer_exposed"], told["newly_exposed"]) == ([WORLD], [])
    assert told["established_connections"] is None


def test_members_stay_those_that_were_selected(tmp_path: Path) -> None:
    """A member that loses the group by which it was chosen is parted, and not forgotten."""
    world = with_acls(cluster([SELF]))
    world.group("sg-other", [])
    world.interfaces[1]["Groups"].append({"GroupId": "sg-other"})
    path = str(folder(tmp_path, world))
    arguments = ("--snapshot", path, "--security-group", "sg-mesh")
    status, found = audit(*arguments, "--what-if", "detach sg-mesh from i-1")
    assert (status, found["mesh_possible"], len(found["members"])) == (1, False, 4)
    assert {(item["source"], item["destination"]) for item in found["what_if"]["newly_blocked"]} == {
        pair for n in (0, 2, 3) for pair in ((f"i-{n}", "i-1"), ("i-1", f"i-{n}"))
    }


def test_what_cannot_be_told_before_or_after_is_unknown(tmp_path: Path) -> None:
    """A list that nobody read: no word on who gets in, and no claim that nothing changes."""
    change = "authorize sg-mesh tcp 22 from pl-1"
    status, found = audit("--snapshot", saved(tmp_path), *DEMO, "--what-if", change)
    assert (status, found["verdict"], found["mesh_possible"]) == (3, "UNKNOWN", True)
    assert [item["no_op"] for item in found["what_if"]["changes"]] == [None]
    assert found["what_if"]["before"]["verdict"] == "PASS"


def test_people_are_told_that_nothing_was_changed(tmp_path: Path) -> None:
    """What differs stands before the verdict, in 80 columns but for what a shell must read whole."""
    status, told, _ = said(
        saved(tmp_path), "--what-if", "revoke sg-mesh tcp all from self", "--suggest", "pinned"
    )
    assert status == 1
    assert told.startswith(
        "What if (nothing was changed in the account):\n  revoke sg-mesh ingress tcp 0-65535 from sg-mesh\n"
    )
    assert "mesh possible: yes -> no\nnewly blocked: 12 of 12 ordered pairs\n" in told
    assert "\nAnd then:\n\nFAIL  sg-no-self-ingress\n" in told
    assert "\nSuggested (nothing was changed; authorise first, then revoke):\n\npinned: " in told
    assert "   then the mesh is possible: yes\n" in told
    wide = [line for line in told.splitlines() if len(line) > WIDTH]
    assert [line for line in wide if len(_shell_words(line.removesuffix("\\"))) > 1] == []


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("--what-if", "revoke"), 2, "argument --what-if: 'revoke': expected a security group"),
        (("--what-if", "revoke sg-mesh tcp 1 from self"), 2, "InvalidPermission.NotFound"),
        (("--what-if", "revoke sg-mesh all to 0.0.0.0/0", "--sarif"), 2, "--sarif is about what stands"),
        (("--suggest", "tight"), 2, "invalid choice: 'tight'"),
        (("--suggest", "--junit"), 2, "--junit is about what stands: it does not go with --suggest"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], status: int, says: str
) -> None:
    """On standard error, with nothing on standard output."""
    done, out, error = said(saved(tmp_path), *arguments)
    assert (done, out) == (status, "")
    assert says in error


def test_a_change_of_what_was_not_read_is_no_usage_error(tmp_path: Path) -> None:
    """Status 3: nobody could look."""
    path = saved(tmp_path)
    (tmp_path / "security-groups.json").unlink()
    status, out, error = said(path, "--what-if", "revoke sg-mesh tcp all from self")
    assert (status, out) == (3, "")
    assert "what sg-mesh holds is not known: security-groups.json is absent" in error


def test_suggestions_stand_beside_the_answer(tmp_path: Path) -> None:
    """One for each profile, with commands, what they leave, and the judgement of the world after."""
    world = with_acls(two_subnets([from_group("sg-mesh", 29500, 29500), from_cidr("10.0.0.0/8", 22, 22)]))
    status, found = audit("--snapshot", str(folder(tmp_path, world)), *DEMO, "--suggest")
    assert (status, found["mesh_possible"]) == (1, False)
    assert [item["profile"] for item in found["suggest"]] == ["all", "pinned", "efa"]
    assert [item["mesh_possible"] for item in found["suggest"]] == [True] * 3
    every = found["suggest"][0]
    assert every["authorize"] == [
        {
            "rule": "sg-mesh ingress tcp 0-65535 from sg-mesh",
            "command": "aws ec2 authorize-security-group-ingress --group-id sg-mesh --ip-permissions "
            "'IpProtocol=tcp,FromPort=0,ToPort=65535,UserIdGroupPairs=[{GroupId=sg-mesh}]'",
        }
    ]
    assert [item["rule"] for item in every["revoke"]] == ["sg-mesh ingress tcp 29500 from sg-mesh"]
    assert [(item["rule"], item["serves"]) for item in every["not_needed"]] == [
        ("sg-mesh ingress tcp 22 from 10.0.0.0/8", "ssh")
    ]
    assert every["kept"] == ["sg-mesh egress all to 0.0.0.0/0"]
    assert "suggest" not in audit("--snapshot", str(tmp_path), *DEMO)[1]
