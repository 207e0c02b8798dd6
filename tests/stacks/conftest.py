"""Shapes of the cluster that the tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.stacks import synthesis

SHAPES: dict[str, dict[str, Any]] = {
    "public": {},
    "private-pinned-reservation": {
        "cluster__network": "private",
        "cluster__port_profile": "pinned",
        "cluster__capacity": "reservation",
    },
    "isolated-efa-existing": {
        "cluster__network": "isolated",
        "cluster__port_profile": "efa",
        "cluster__capacity": "existing",
        "cluster__capacity_reservation_id": synthesis.RESERVATION,
        "cluster__torch_source": "image",
    },
    "block-ubuntu-arm64": {
        "cluster__capacity": "block",
        "cluster__capacity_reservation_id": synthesis.RESERVATION,
        "cluster__placement": "none",
        "cluster__instance_type": "c7g.xlarge",
        "cluster__operating_system": "ubuntu",
    },
    "spread-two-subnets": {
        "cluster__placement": "spread",
        "cluster__subnets": 2,
        "cluster__availability_zone": "us-east-1b,us-east-1d",
    },
}


@pytest.fixture(params=sorted(SHAPES))
def shape(request: pytest.FixtureRequest) -> synthesis.Synthesis:
    """Every main shape in turn."""
    return synthesis.synthesise(**SHAPES[request.param])


@pytest.fixture
def public() -> synthesis.Synthesis:
    """The default cluster."""
    return synthesis.synthesise()


@pytest.fixture
def private() -> synthesis.Synthesis:
    return synthesis.synthesise(**SHAPES["private-pinned-reservation"])


@pytest.fixture
def isolated() -> synthesis.Synthesis:
    return synthesis.synthesise(**SHAPES["isolated-efa-existing"])


@pytest.fixture
def checkout() -> Path:
    return synthesis.CHECKOUT
