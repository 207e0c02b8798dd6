"""A control plane for the tests of a module, and a stack in it for one test."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.lab.plane import Plane, running_plane
from tests.lab.stack import Stack


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture
def stack(plane: Plane, request: pytest.FixtureRequest) -> Iterator[Stack]:
    made = Stack(plane, re.sub("[^a-z]+", "-", request.node.name).strip("-"))
    yield made
    plane.limit_capacity({})
    made.delete()
