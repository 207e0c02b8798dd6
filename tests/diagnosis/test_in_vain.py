"""Variables set in vain: one finding a reason, with what works and how it is turned on."""

from __future__ import annotations

from typing import Dict, Tuple

import pytest

from diagnosis.report import Verdict
from tests.diagnosis.builders import diagnose, env, healthy, named, on_host

BUILD = {"python": "3.11", "torch": "2.13.0+cpu"}

COMMANDS: Dict[str, Tuple[str, str, Tuple[str, ...]]] = {
    "GLOO_TIMEOUT_SECONDS": ("90", "timedelta(seconds=90)", ()),
    "GLOO_MAX_NUM_CHANNELS": ("4", "async_op=True", ("export GLOO_SOCKET_IFNAME=ens5,ens5,ens5,ens5",)),
    "GLOO_SOCKET_NTHREADS": (
        "100",
        "async_op=True",
        ("export GLOO_SOCKET_IFNAME=" + ",".join(["ens5"] * 8),),
    ),
    "GLOO_HIERARCHICAL_ALLREDUCE": ("1", "init_device_mesh", ()),
    "GLOO_COMPRESSION_LEVEL": ("5", "fp16_compress_hook", ()),
    "GLOO_SOCKET_FAMILY": ("AF_INET", "first address", ("export GLOO_SOCKET_IFNAME=ens5",)),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_works_is_told_for_this_node(name: str) -> None:
    """Python lines and commands with the variable's value and the node's interface filled in."""
    value, words, commands = COMMANDS[name]
    (cause,) = diagnose(env(healthy(), [1], **{name: value})).causes
    assert (cause.id, cause.subject) == ("env-no-effect", "node:1")
    assert words in cause.remediation
    assert cause.commands == (f"unset {name}", *commands)
    assert cause.evidence == (f"node:1 {name}={value} (no torch for this Python)",)


def test_the_libraries_word_is_part_of_the_evidence() -> None:
    """Whether they were looked through is said."""
    rows = on_host(env(healthy(), range(4), GLOO_COMPRESSION="1"), range(4), versions=BUILD)
    (cause,) = diagnose(on_host(rows, range(4), held_by_torch={"GLOO_COMPRESSION": False})).causes
    assert (cause.id, cause.subject) == ("env-no-effect", "cluster")
    assert cause.summary.startswith(
        "GLOO_COMPRESSION has no effect: no release of Gloo or torch up to 2.14 reads it, and torch "
        "2.13.0+cpu as it is installed here does not hold its name; what works: "
    )
    assert cause.evidence[0] == (
        "node:0 GLOO_COMPRESSION=1 (torch 2.13.0+cpu, its libraries were looked through)"
    )
    held = diagnose(on_host(rows, range(4), held_by_torch={"GLOO_COMPRESSION": True}))
    assert (named(held), held.verdict) == ([], Verdict.PASS)


def test_nccls_interface_is_not_gloos() -> None:
    """A CPU build reads none of NCCL's; only the one that seems to choose Gloo's way is worth a word."""
    nccl = {"NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_SOCKET_IFNAME": "ens5"}
    rows = on_host(env(healthy(), range(4), **nccl), range(4), versions=BUILD)
    (cause,) = diagnose(rows).causes
    assert (cause.id, cause.subject) == ("env-no-effect", "cluster")
    assert cause.commands == ("unset NCCL_SOCKET_IFNAME", "export GLOO_SOCKET_IFNAME=ens5")
    assert named(diagnose(env(rows, range(4), GLOO_SOCKET_IFNAME="ens5"))) == []
