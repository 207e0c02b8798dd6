"""One account with the default cluster, for every test that changes nothing in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.audit.deployed import Account, running_account


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with running_account(tmp_path_factory.mktemp("account")) as running:
        running.deploy()
        yield running
