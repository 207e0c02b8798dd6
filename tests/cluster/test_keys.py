"""Names that parts which never import each other must agree on are held once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from cluster.keys import read_registration, registration
from probe.members import Member, parse_registration
from stacks.runtime.rows import Row, registered

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cluster", "diagnosis", "probe", "audit", "stacks", "lab")


def test_a_registration_reads_back_in_every_part() -> None:
    """What a node writes, nodes and the referee's function read alike."""
    name = registration("10.0.0.4", 29500, (32768, 60999))
    assert name == "member~10.0.0.4~29500~32768,60999"
    assert read_registration(name) == ("10.0.0.4", 29500, (32768, 60999))
    member = Member(member_id="i-0", address="10.0.0.4", master_port=29500, ports=(32768, 60999))
    assert (member.registration(), parse_registration("i-0", name)) == (name, member)
    assert registered([Row(f"rows/r/A:i-0/{name}", "A:i-0", name, 1.0)]) == {"i-0": "10.0.0.4"}


def test_what_is_no_registration_is_none_and_a_broken_one_is_said() -> None:
    """Another object's name is None; a name that only begins like one is an error, and no member."""
    assert read_registration("mesh.json") is None
    for name in ("member~10.0.0.4", "member~10.0.0.4~x~1"):
        with pytest.raises(ValueError, match=r"registration|invalid literal"):
            read_registration(name)
        assert registered([Row(f"rows/r/A:i-0/{name}", "A:i-0", name, 1.0)]) == {}


@pytest.mark.parametrize(
    "name",
    [
        "CLUSTER_TAG",
        "COLLECTIVE_ROW",
        "DEFAULT_EPHEMERAL_PORTS",
        "EVERY_LISTENER_UP_TO_NODES",
        "FAILED_ROW",
        "MESH_ROW",
        "SIGNAL_UNIQUE_ID",
        "STAGES",
    ],
)
def test_a_shared_constant_is_assigned_once(name: str) -> None:
    """One module owns it, all others import it."""
    owners = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    assert len(owners) == 1


def test_linux_own_range_is_written_once() -> None:
    """No module but cluster/ports.py spells out the default range as a range."""
    found = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if "PortRange(32768" in path.read_text()
    ]
    assert found == ["cluster/ports.py"]
