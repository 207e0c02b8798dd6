"""Who is a member, by each way of saying it."""

from __future__ import annotations

from typing import Any

import pytest

from audit.members import Members, Selection
from tests.cluster.world import World, cluster, from_group


def world() -> World:
    """Members 0-3 of `demo`; a bastion outside, and one member that is stopped."""
    made = cluster([from_group("sg-mesh")])
    made.group("sg-bastion", name="bastion")
    made.node("bastion", "10.20.1.200", ["sg-bastion"], member=False)
    made.node("old", "10.20.1.201", ["sg-mesh"], state="stopped")
    for instance in made.instances:
        instance["VpcId"] = "vpc-1"
    return made


DEMO = (("fullmesh:cluster", "demo"),)
FOUR = ("i-0", "i-1", "i-2", "i-3")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"tags": DEMO}, FOUR),
        ({"tags": (*DEMO, ("team", "a"))}, ()),
        ({"vpc_ids": ("vpc-1",)}, (*FOUR, "i-bastion")),
        ({"vpc_ids": ("vpc-2",)}, ()),
        ({"group_ids": ("sg-mesh",)}, FOUR),
        ({"group_ids": ("sg-mesh", "sg-bastion")}, (*FOUR, "i-bastion")),
        ({"vpc_ids": ("vpc-1",), "group_ids": ("sg-bastion",)}, ("i-bastion",)),
        ({"instance_ids": ("i-2", "i-1")}, ("i-1", "i-2")),
        ({"tags": DEMO, "instance_ids": ("i-1", "i-bastion")}, ("i-1",)),
    ],
)
def test_a_selection_takes_exactly_these(selection: dict[str, Any], expected: tuple[str, ...]) -> None:
    """Values of one kind are alternatives, kinds are joined; only what runs is a member."""
    found = Selection(**selection).members(world().snapshot())
    assert (found.ids, found.unread) == (expected, ())


def test_a_named_instance_that_does_not_run_is_no_member_and_no_stranger() -> None:
    """It is told, and left out of the judgement."""
    found = Selection(instance_ids=("i-0", "i-1", "i-old")).members(world().snapshot())
    assert found == Members(
        ids=("i-0", "i-1"),
        unread=("i-old is stopped: only a running instance is judged",),
        fellows=("i-old",),
    )


def test_a_named_instance_that_is_not_there_is_told() -> None:
    """A mistyped id must not make a smaller mesh that passes."""
    found = Selection(instance_ids=("i-0", "i-1", "i-9")).members(world().snapshot())
    assert found == Members(ids=("i-0", "i-1"), unread=("i-9 is not among the instances",))


def test_ids_alone_need_no_document_of_instances() -> None:
    """Their interfaces say what their rules are; by tag nobody could tell."""
    without = world().snapshot("instances")
    assert Selection(instance_ids=("i-0", "i-1")).members(without) == Members(ids=("i-0", "i-1"))
    assert Selection(tags=DEMO).members(without) == Members(
        ids=(),
        unread=("who is a member cannot be told: instances was not read",),
        fellows=(*FOUR, "i-bastion", "i-old"),
    )


def test_groups_that_nobody_listed_may_be_the_one() -> None:
    """An interface without a list of groups leaves open whether its instance is a member."""
    made = world()
    del made.interfaces[3]["Groups"]
    found = Selection(group_ids=("sg-mesh",)).members(made.snapshot())
    assert (found.ids, len(found.unread)) == (("i-0", "i-1", "i-2"), 1)
    assert found.unread[0].startswith("whether i-3 carries sg-mesh cannot be told")
