"""Shared by all tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write the `lab` mark into the report: tools/require_lab_tests.py demands that those tests ran."""
    for item in items:
        if item.get_closest_marker("lab") is not None:
            item.user_properties.append(("lab", "1"))
