"""Variables: which are read, which are not, and which values can be right."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

import pytest

from diagnosis.environment import host_is_well_formed, missing_rendezvous, transport_is_known
from diagnosis.variables import READ, UNREAD, compiled_names, without_effect


def test_no_variable_is_both_read_and_unread() -> None:
    """The two tables exclude each other, and each entry says something."""
    assert not set(READ) & set(UNREAD)
    assert all(READ.values())
    assert all(UNREAD.values())


def in_vain(
    environment: Dict[str, str], torch: str = "", held: Optional[Dict[str, bool]] = None
) -> Dict[str, str]:
    """Name -> why it has no effect."""
    return {told.name: told.why for told in without_effect(environment, torch, held)}


def test_unread_variables_are_named_with_what_works() -> None:
    """Known ones with their mechanism, unknown GLOO_ names too, others not at all."""
    found = without_effect(
        {"GLOO_COMPRESSION": "1", "GLOO_SOCKET_IFNAME": "ens5", "GLOO_XYZ": "1", "NCCL_SOCKET_NTHREADS": "2"}
    )
    assert [told.name for told in found] == ["GLOO_COMPRESSION", "GLOO_XYZ"]
    assert found[0].instead is not None
    assert "fp16_compress_hook" in found[0].instead.python
    assert found[1].instead is None


@pytest.mark.parametrize(
    ("name", "torch", "held", "expected"),
    [
        # nothing is known of the torch at hand: the table speaks, and says how far it goes
        ("GLOO_COMPRESSION", "", None, "no release of Gloo or torch up to 2.14 reads it"),
        ("TORCH_GLOO_LAZY_INIT", "", None, None),
        # its release is known, its libraries are not
        ("TORCH_GLOO_LAZY_INIT", "2.7.1", None, "torch 2.7.1 does not read it, releases from 2.8 on do"),
        ("TORCH_GLOO_LAZY_INIT", "2.8.0+cu128", None, None),
        ("GLOO_LOG_LEVEL", "2.10.0", None, "torch 2.10.0 does not read it, releases from 2.11 on do"),
        ("GLOO_LOG_LEVEL", "2.11.0a0+git1", None, None),
        ("TORCH_DIST_INIT_BARRIER", "1.13.1", None, "torch 1.13.1 does not read it, releases from 2.1 on do"),
        ("GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT", "2.13.0", None, None),
        ("GLOO_COMPRESSION", "2.14.1", None, "no release of Gloo or torch up to 2.14 reads it"),
        ("GLOO_COMPRESSION", "2.15.0", None, None),
        ("GLOO_XYZ", "2.15.0", None, None),
        # its libraries were looked through
        (
            "GLOO_COMPRESSION",
            "2.15.0+cpu",
            False,
            "no release of Gloo or torch up to 2.14 reads it, and torch 2.15.0+cpu as it is installed here "
            "does not hold its name",
        ),
        ("GLOO_COMPRESSION", "2.15.0+cpu", True, None),
        ("GLOO_XYZ", "2.13.0+cpu", True, None),
        ("GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT", "2.13.0+cu128", True, None),
        (
            "GLOO_DEVICE_TRANSPORT_TCP_TLS_CERT",
            "2.13.0+cpu",
            False,
            "torch 2.13.0+cpu as it is installed here does not hold its name; other builds do",
        ),
        (
            "TORCH_GLOO_LAZY_INIT",
            "2.7.1",
            False,
            "torch 2.7.1 as it is installed here does not hold its name; releases from 2.8 on read it",
        ),
        # a patched build, and a build that keeps its names elsewhere: a doubt names nothing
        ("TORCH_GLOO_LAZY_INIT", "2.7.1", True, None),
        ("TORCH_GLOO_LAZY_INIT", "2.13.0", False, None),
        # NCCL's: read by a torch that has NCCL
        ("NCCL_SOCKET_IFNAME", "2.13.0+cpu", None, "torch 2.13.0+cpu is built without NCCL"),
        ("NCCL_SOCKET_IFNAME", "2.13.0+cu128", None, None),
        ("NCCL_SOCKET_IFNAME", "2.13.0", None, None),
        ("NCCL_SOCKET_IFNAME", "", None, None),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2.13.0+cpu", None, None),
    ],
)
def test_the_torch_at_hand_decides(
    name: str, torch: str, held: Optional[bool], expected: Optional[str]
) -> None:
    """By its libraries where they were read, else by its release; what neither tells is not claimed."""
    found = in_vain({name: "1"}, torch, None if held is None else {name: held})
    assert found == ({} if expected is None else {name: expected})


@pytest.mark.parametrize(
    ("value", "counts"), [("1", True), ("True", True), ("0", True), ("false", True), ("true", False)]
)
def test_a_flag_of_gloos_counts_as_it_is_spelled(value: str, counts: bool) -> None:
    """Gloo compares with 1 and True exactly: `true` turns nothing on; what is meant as off is off."""
    found = in_vain({"GLOO_ENABLE_STORE_V2_API": value}, "2.13.0+cpu", {"GLOO_ENABLE_STORE_V2_API": True})
    expected = {"GLOO_ENABLE_STORE_V2_API": "'true' is none of the values that count, which are 1, True"}
    assert found == ({} if counts else expected)


def test_only_names_of_libraries_are_looked_for() -> None:
    """What Python reads is not in them, and nobody else's variables are asked for."""
    environment = dict.fromkeys(("GLOO_X", "USE_LIBUV", "MASTER_ADDR", "TORCH_CPP_LOG_LEVEL", "HOME"), "1")
    assert compiled_names(environment) == ("GLOO_X", "TORCH_CPP_LOG_LEVEL")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, ()),
        ({"WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, ()),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "MASTER_ADDR": "a"}, ("MASTER_PORT",)),
    ],
)
def test_other_launchers_stand_in_for_ranks_and_sizes(
    values: Dict[str, str], expected: Tuple[str, ...]
) -> None:
    """Slurm's, MPI's and torchrun's own variables give RANK and WORLD_SIZE."""
    assert missing_rendezvous(values) == expected


@pytest.mark.parametrize(
    "value", ["10.0.0.1", "node-1", "ip-10-0-0-1.ec2.internal", "a_b", "::1", "fe80::1%eth0", "h."]
)
def test_host_names_and_addresses_are_well_formed(value: str) -> None:
    """Names with underscores resolve too, so they are not malformed."""
    assert host_is_well_formed(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 10.0.0.1",
        "10.0.0.1:29500",
        "http://h",
        "[::1]",
        '"h"',
        "h/path",
        "<master>",
        "$MASTER",
        "-h",
        "a b",
    ],
)
def test_what_is_no_host_is_malformed(value: str) -> None:
    """Blanks, ports, schemes, brackets, quotes, paths and placeholders."""
    assert not host_is_well_formed(value)


def test_transports_are_upper_case() -> None:
    """The registry's keys are compared exactly."""
    assert transport_is_known("TCP")
    assert not transport_is_known("tcp")
