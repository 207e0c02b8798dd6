"""Variables: which are read, which are not, and which values can be right."""

from __future__ import annotations

from typing import Dict, Tuple

import pytest

from diagnosis.environment import (
    READ,
    UNREAD,
    host_is_well_formed,
    missing_rendezvous,
    transport_is_known,
    without_effect,
)


def test_no_variable_is_both_read_and_unread() -> None:
    """The two tables exclude each other, and each entry says something."""
    assert not set(READ) & set(UNREAD)
    assert all(READ.values())
    assert all(UNREAD.values())


def test_unread_variables_are_named_with_what_works() -> None:
    """Known ones with their mechanism, unknown GLOO_ names too, others not at all."""
    found = without_effect(
        {"GLOO_COMPRESSION": "1", "GLOO_SOCKET_IFNAME": "ens5", "GLOO_XYZ": "1", "NCCL_SOCKET_NTHREADS": "2"}
    )
    assert [name for name, _ in found] == ["GLOO_COMPRESSION", "GLOO_XYZ"]
    assert "fp16_compress_hook" in found[0][1]


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
