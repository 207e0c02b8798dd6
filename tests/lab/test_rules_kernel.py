"""The engine of cluster/ against the kernel: random rules, real connections, the same answer.

FULLMESH_RULE_WORLDS says how many worlds are drawn (about 200 connections each), FULLMESH_RULE_SEED
the number of the first; a failure prints the one that shows it.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from bench.rule_check import ask_engine, check, compiled, disagreements
from bench.rule_kernel import Kernel
from bench.rule_world import Flow, RuleWorld, draw
from cluster import lookup, rules
from cluster.acl_rules import AclRules
from cluster.group_masks import DirectionRules
from cluster.passing import Passing
from cluster.path import PathRules
from cluster.ports import PortRange, PortSet
from cluster.stages import PASSES, Reason

pytestmark = pytest.mark.lab

WORLDS = int(os.environ.get("FULLMESH_RULE_WORLDS", "40"))
SEED = int(
    os.environ.get("FULLMESH_RULE_SEED")
    or (1000 if os.environ.get("CI") == "true" else random.SystemRandom().randrange(2**32))
)
"""In continuous integration always the same, so that what fails there is what was changed."""
MUTANT_WORLDS = 20
"""How many worlds a broken engine or compiler may pass before it has to be caught."""
MUTANT_PATIENCE_S = 1.5
"""What a broken compiler stops is not waited for as long as what is right must have."""


def drawn(number: int) -> RuleWorld:
    return draw(random.Random(number))  # noqa: S311 - the same number gives the same world


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel() as made:
        yield made


def test_the_kernel_lets_through_what_the_engine_says(kernel: Kernel) -> None:
    """Groups, references, ranges, prefix lists, ordered and stateless ACLs, to the port, replies included."""
    tried = passed = 0
    for number in range(SEED, SEED + WORLDS):
        world = drawn(number)
        found = check(world, kernel)
        tried, passed = tried + found.tried, passed + found.passed
        if found.disagreements:
            shown = "\n".join(found.disagreements[:5])
            again = f"again: FULLMESH_RULE_SEED={number} FULLMESH_RULE_WORLDS=1"
            pytest.fail(f"{again}\n{shown}\n{json.dumps(world.documents)}")
    print(f"FULLMESH_RULE_SEED={SEED}: {tried} connections tried, {passed} passed")
    if WORLDS >= 40:  # a few worlds can be anything
        assert tried >= 100 * WORLDS, "the worlds are too small to prove anything"
        assert tried * 0.05 <= passed <= tried * 0.7, "nearly all blocked or nearly all open proves little"


Recorded = tuple[RuleWorld, frozenset[Flow]]


@pytest.fixture(scope="module")
def recorded(kernel: Kernel) -> list[Recorded]:
    """What the kernel did with the same worlds each time."""
    worlds = [drawn(number) for number in range(MUTANT_WORLDS)]
    return [
        (world, frozenset(kernel.connected(compiled(world), world.flows, ask_engine(world).passing)))
        for world in worlds
    ]


Mutate = Callable[[pytest.MonkeyPatch], None]


def _pair_by_pair(patch: pytest.MonkeyPatch) -> None:
    """No whole rows: every pair is judged by itself, where the mutant bites."""
    patch.setattr(Passing, "rows", lambda self: ((0, 0) for _ in self._places))


def _acl_in_reverse(patch: pytest.MonkeyPatch) -> None:
    def wrong(entries: Any, *rest: Any) -> AclRules:
        return AclRules([replace(entry, number=-entry.number) for entry in entries], *rest)

    patch.setattr(lookup, "AclRules", wrong)


def _without_replies(patch: pytest.MonkeyPatch) -> None:
    real = PathRules.acl_stage
    replies = (Reason.ACL_REPLY_EGRESS, Reason.ACL_REPLY_INGRESS)

    def wrong(self: PathRules, own: Any, far: Any, reason: Reason) -> Any:
        return PASSES if reason in replies else real(self, own, far, reason)

    patch.setattr(PathRules, "acl_stage", wrong)


def _acl_inside_a_subnet(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: PathRules, source: Any, target: Any) -> Any:
        return (self.acl_stage(source, target, Reason.ACL_EGRESS),), ()

    _pair_by_pair(patch)
    patch.setattr(PathRules, "net_stages", wrong)


def _ports_end_one_later(patch: pytest.MonkeyPatch) -> None:
    real = rules.SecurityGroupRule.ports

    def wrong(self: rules.SecurityGroupRule, protocol: str) -> Any:
        found = real(self, protocol)
        return PortSet.of(PortRange(r.first, min(r.last + 1, 65535)) for r in found)

    patch.setattr(rules.SecurityGroupRule, "ports", wrong)


def _first_rule_only(patch: pytest.MonkeyPatch) -> None:
    real = DirectionRules.__init__
    patch.setattr(DirectionRules, "__init__", lambda self, some, *rest: real(self, list(some)[:1], *rest))


def _prefix_lists_are_empty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        rules.SecurityGroupRule, "networks", property(lambda self: (self.network,) if self.network else ())
    )


def _stale_references_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules.SecurityGroupRule, "stale", property(lambda self: False))


def _egress_is_free(patch: pytest.MonkeyPatch) -> None:
    real = PathRules.group_stages
    _pair_by_pair(patch)
    patch.setattr(PathRules, "group_stages", lambda self, a, b: (PASSES, real(self, a, b)[1]))


def _rows_take_any_port(patch: pytest.MonkeyPatch) -> None:
    """A row holds whoever gets through on some needed port instead of on every one."""
    real = Passing._by_part

    def wrong(self: Passing, some: DirectionRules) -> list[int]:
        parts = real(self, some)
        return [functools.reduce(operator.or_, parts, 0)] * len(parts)

    patch.setattr(Passing, "_by_part", wrong)


def _rows_ask_no_receiver(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Passing, "_receivers", lambda self: [self._everybody] * len(self._places))


def _rows_meet_no_acl(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Passing, "_reached", lambda self, net, outward: self._everybody)


ENGINE_MUTANTS: list[Mutate] = [
    _acl_in_reverse,
    _without_replies,
    _acl_inside_a_subnet,
    _ports_end_one_later,
    _first_rule_only,
    _prefix_lists_are_empty,
    _stale_references_count,
    _egress_is_free,
    _rows_take_any_port,
    _rows_ask_no_receiver,
    _rows_meet_no_acl,
]

Edit = tuple[str, str]

COMPILER_MUTANTS: dict[str, Edit] = {
    "groups forget connections": (r"ct state established,related accept\n", ""),
    "acls keep connections": (
        r"(own_source|iifname \. ip saddr != @sources drop)",
        r"\1\nct state established accept",
    ),
    "acls part a subnet": (r"ip [sd]addr 10\.42\.\d+\.0/20 return\n", ""),
    "nobody asks the sender's groups": (r"iifname vmap \{[^}]*sg_out[^}]*\}\n", ""),
    "nobody asks the receiver's acl": (r"oifname vmap \{[^}]*acl_in[^}]*\}", "counter"),
    "an acl's deny is skipped": (r"[^\n]*dport[^\n]*drop\n", ""),
    "prefix lists are empty": (
        r"(set list_\w+ \{\ntype ipv4_addr\nflags interval\nauto-merge\n)elements[^\n]*\n",
        r"\1",
    ),
    "ranges lose their last port": (r"(dport \d+-\d*?)([1-9])\b", lambda m: m[1] + str(int(m[2]) - 1)),  # type: ignore[dict-item]
}


def test_the_engine_as_it_is_agrees_with_what_was_recorded(recorded: list[Recorded]) -> None:
    """Without a mutant nothing is caught, so that what is caught below is the mutant's doing."""
    assert [disagreements(world, ask_engine(world), connected) for world, connected in recorded] == [
        ()
    ] * MUTANT_WORLDS


@pytest.mark.parametrize("mutate", ENGINE_MUTANTS, ids=lambda mutate: mutate.__name__.strip("_"))
def test_a_broken_engine_is_caught(
    recorded: list[Recorded], mutate: Mutate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way of judging wrongly is held against what the kernel did, and shows."""
    mutate(monkeypatch)
    assert any(disagreements(world, ask_engine(world), connected) for world, connected in recorded)


@pytest.mark.parametrize("name", COMPILER_MUTANTS)
def test_a_broken_compiler_is_caught(kernel: Kernel, recorded: list[Recorded], name: str) -> None:
    """Each way of enforcing wrongly shows in the kernel, against what the right rules do there."""
    pattern, replacement = COMPILER_MUTANTS[name]
    for world, connected in recorded:
        ruleset = compiled(world)
        wrong = re.sub(pattern, replacement, ruleset)
        if wrong == ruleset:
            continue
        if kernel.connected(wrong, world.flows, connected, MUTANT_PATIENCE_S) != connected:
            return
    pytest.fail(f"in {MUTANT_WORLDS} worlds nothing shows that {name}")
