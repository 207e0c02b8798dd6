"""Settings that all ranks must share, and what merely differs."""

from __future__ import annotations

from typing import Dict, List

import pytest

from diagnosis.agreement import MUST_AGREE
from diagnosis.report import Verdict
from tests.diagnosis.builders import Named, Reports, diagnose, env, healthy, named, on_host

ON = {
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": "1",
    "TORCH_GLOO_LAZY_INIT": "YES",
    "TORCH_DIST_INIT_BARRIER": "1",
    "TORCH_DISTRIBUTED_DEBUG": "Detail",
    "GLOO_SOCKET_IFNAME": "ens5,ens5",
}
OF_NO_MEANING = {
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": "0",
    "TORCH_GLOO_LAZY_INIT": "no",
    "TORCH_DIST_INIT_BARRIER": "0",
    "TORCH_DISTRIBUTED_DEBUG": "INFO",
    "GLOO_SOCKET_IFNAME": "ens5",
}


def with_torch(release: str, nodes: int = 4) -> Reports:
    return on_host(healthy(nodes), range(nodes), versions={"python": "3.11", "torch": release})


def test_every_setting_is_tried_here() -> None:
    """A new one needs a value that means something, and one that does not."""
    assert set(ON) == set(OF_NO_MEANING) == set(MUST_AGREE)


@pytest.mark.parametrize("name", ON)
def test_a_setting_that_one_node_alone_has_is_named_there(name: str) -> None:
    """At that node, before torch hangs over it, with the line that makes it like the others."""
    diagnosis = diagnose(env(with_torch("2.13.0+cpu"), [2], **{name: ON[name]}))
    assert (named(diagnosis), diagnosis.verdict) == ([("env-inconsistent", "node:2")], Verdict.FAIL)
    assert diagnosis.causes[0].commands == (f"unset {name}",)
    assert diagnosis.causes[0].summary == (
        f"{name} must be equal on all ranks: not set on ranks 0-1, 3, {ON[name]} on rank 2"
    )
    assert diagnosis.differences == (f"{name}: not set on ranks 0-1, 3, {ON[name]} on rank 2",)


@pytest.mark.parametrize("name", ON)
def test_a_node_that_lacks_what_the_others_have_is_named(name: str) -> None:
    """The minority is who did not set it, and gets the others' value."""
    diagnosis = diagnose(env(with_torch("2.13.0+cpu"), [0, 1, 3], **{name: ON[name]}))
    assert named(diagnosis) == [("env-inconsistent", "node:2")]
    assert diagnosis.causes[0].commands == (f"export {name}={ON[name]}",)


@pytest.mark.parametrize("name", ON)
def test_alike_on_all_nodes_is_no_fault(name: str) -> None:
    """What all ranks share works."""
    diagnosis = diagnose(env(with_torch("2.13.0+cpu"), range(4), **{name: ON[name]}))
    assert (named(diagnosis), diagnosis.differences) == ([], ())


@pytest.mark.parametrize("name", ON)
def test_a_value_that_means_the_same_only_differs(name: str) -> None:
    """Side by side, and no fault."""
    diagnosis = diagnose(env(with_torch("2.13.0+cpu"), [2], **{name: OF_NO_MEANING[name]}))
    assert (named(diagnosis), diagnosis.verdict) == ([], Verdict.PASS)
    assert diagnosis.differences == (f"{name}: not set on ranks 0-1, 3, {OF_NO_MEANING[name]} on rank 2",)


def test_no_majority_is_the_clusters() -> None:
    """Two against two: neither is the odd one."""
    diagnosis = diagnose(env(with_torch("2.13.0+cpu"), [0, 1], TORCH_DISTRIBUTED_DEBUG="DETAIL"))
    assert named(diagnosis) == [("env-inconsistent", "cluster")]


BY_RELEASE: Dict[str, Named] = {
    "2.7.1": [("env-no-effect", "node:2")],
    "2.8.0": [("env-inconsistent", "node:2")],
}


@pytest.mark.parametrize("release", BY_RELEASE)
def test_what_this_torch_does_not_read_need_not_agree(release: str) -> None:
    """In vain before torch 2.8, fatal from there on."""
    rows = env(with_torch(release), [2], TORCH_GLOO_LAZY_INIT="1")
    assert named(diagnose(rows)) == BY_RELEASE[release]


def test_an_unknown_torch_is_not_said_to_read_it() -> None:
    """Before torch is installed its release is not known: the difference is shown, nothing is named."""
    diagnosis = diagnose(env(healthy(), [2], TORCH_GLOO_LAZY_INIT="1"))
    assert named(diagnosis) == []
    assert diagnosis.differences == ("TORCH_GLOO_LAZY_INIT: not set on ranks 0-1, 3, 1 on rank 2",)
    every = diagnose(env(healthy(), [2], TORCH_DISTRIBUTED_DEBUG="DETAIL"))
    assert named(every) == [("env-inconsistent", "node:2")]


def test_what_is_each_ranks_own_is_no_difference() -> None:
    """Ranks, ports of launchers and files of errors differ by their nature."""
    rows = healthy(2)
    for node in range(2):
        names: List[str] = ["RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NODEID", "PMIX_RANK", "PMI_FD"]
        names += ["SLURM_STEP_LAUNCHER_PORT", "TORCHELASTIC_ERROR_FILE", "OMPI_COMM_WORLD_LOCAL_RANK"]
        rows = env(rows, [node], **{name: str(node) for name in names})
    assert diagnose(rows).differences == ()


def test_many_values_are_cut_short() -> None:
    """Eight of twelve values, and how many more there are."""
    rows = healthy(12)
    for node in range(12):
        rows = env(rows, [node], HOROVOD_X=str(node))
    (told,) = diagnose(rows).differences
    assert told.startswith("HOROVOD_X: 0 on rank 0, 1 on rank 1,")
    assert told.endswith("7 on rank 7, and 4 other values")
