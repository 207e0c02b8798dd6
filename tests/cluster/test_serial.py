"""Dataclasses to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster import serial
from cluster.ports import PortRange
from diagnosis.report import ConnectOutcome, HostFacts, NodeReport, PairProbe, PortKind

REPORT = NodeReport(
    run="r1",
    member_id="i-1",
    address="10.0.0.1",
    name="one",
    members={"i-1": "10.0.0.1", "i-2": "10.0.0.2"},
    host=HostFacts(
        local_port_range=PortRange(32768, 60999),
        interfaces={"ens5": ("10.0.0.1", "fe80::1")},
        nofile_limit=1024,
    ),
    probes=(
        PairProbe(
            destination="i-2",
            address="10.0.0.2",
            port=29500,
            kind=PortKind.MASTER,
            outcome=ConnectOutcome.TIMED_OUT,
            connect_s=2.0,
        ),
    ),
)


def test_a_report_survives_the_way_through_json() -> None:
    """Nested dataclasses, enums, tuples, mappings and None come back equal."""
    text = json.dumps(serial.encode(REPORT))
    assert serial.decode(NodeReport, json.loads(text)) == REPORT


def test_a_whole_number_is_a_float_where_one_is_meant() -> None:
    """JSON writes 2.0 as 2 in some programs; a float field takes it."""
    document = serial.encode(REPORT)
    document["probes"][0]["connect_s"] = 2
    assert serial.decode(NodeReport, document) == REPORT


def test_keys_of_a_newer_writer_are_ignored() -> None:
    """An older reader takes what it knows."""
    assert serial.decode(NodeReport, {**serial.encode(REPORT), "later": 1}) == REPORT


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("run", None, "NodeReport.run: expected str, got None"),
        ("members", [], "NodeReport.members: expected an object, got []"),
        ("probes", {}, "NodeReport.probes: expected a list, got {}"),
        ("schema_version", True, "NodeReport.schema_version: expected int, got True"),
        (
            "probes",
            [{**serial.encode(REPORT.probes)[0], "kind": "OTHER"}],
            "NodeReport.probes[0].kind: 'OTHER' is none of MASTER, EPHEMERAL",
        ),
        (
            "host",
            {"local_port_range": {"first": 9, "last": 1}},
            "NodeReport.host.local_port_range: port range 9-1 is not within 0-65535 in order",
        ),
        ("host", {"local_port_range": {"first": 9}}, "NodeReport.host.local_port_range.last: is missing"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(key: str, value: Any, message: str) -> None:
    """Half-written and wrong rows are refused at the first wrong place."""
    with pytest.raises(serial.DecodeError) as error:
        serial.decode(NodeReport, {**serial.encode(REPORT), key: value})
    assert str(error.value) == message
