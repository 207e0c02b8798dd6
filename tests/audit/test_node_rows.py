"""What is taken from the evidence bucket: the newest row of each member, and who was proven when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from audit import node_rows
from audit.account import Account as Reader
from tests.audit.deployed import Account

RUN = "0123456789ab"
NOW_S = 1_700_000_400.0
ROLE = "AROA1"


@pytest.fixture
def bucket(account: Account, request: pytest.FixtureRequest) -> str:
    name = f"rows-{abs(hash(request.node.name)) % 10**9}"
    account.client("s3").create_bucket(Bucket=name)
    return name


def put(account: Account, bucket: str, run: str, member: str, name: str, first: int = 0) -> None:
    row = {"member_id": member, "host": {"local_port_range": {"first": first, "last": 60999}}, "probes": []}
    body = json.dumps(row) if name.endswith(".json") else ""
    key = f"rows/{run}/{ROLE}:{member}/{name}"
    account.client("s3").put_object(Bucket=bucket, Key=key, Body=body.encode())


def read(account: Account, bucket: str) -> dict[str, Any]:
    outputs = {"Evidence": f"s3://{bucket}/rows/{RUN}/", "Run": RUN}
    found = node_rows.read(Reader(account.session), outputs, NOW_S)["Nodes"]
    return {item["MemberId"]: item for item in found}


def test_the_newest_row_of_each_member_counts(account: Account, bucket: str) -> None:
    """A late check goes before the deploy, the collective before the mesh; verdicts are no rows."""
    put(account, bucket, RUN, "i-1", "member~10.0.0.1~29500~40000")
    put(account, bucket, RUN, "i-1", "mesh.json", 1)
    put(account, bucket, RUN, "i-1", "collective.json", 2)
    put(account, bucket, RUN, "i-1", "verdict-collective.json", 9)
    put(account, bucket, RUN, "i-2", "collective.json", 3)
    put(account, bucket, f"{RUN}-check-{int(NOW_S) - 600}", "i-2", "mesh.json", 4)
    put(account, bucket, f"{RUN}-check-{int(NOW_S) - 300}", "i-2", "mesh.json", 5)
    found = read(account, bucket)
    ports = {key: item["Row"]["host"]["local_port_range"]["first"] for key, item in found.items()}
    assert ports == {"i-1": 2, "i-2": 5}
    assert [found[key]["Registered"] for key in ("i-1", "i-2")] == [True, False]
    assert "probes" not in found["i-1"]["Row"]


def test_a_member_that_joined_later_says_in_which_run(account: Account, bucket: str) -> None:
    """The note stands in the deploy's run; the row in the check's."""
    late = f"{RUN}-check-{int(NOW_S) - 300}"
    put(account, bucket, RUN, "i-3", f"joined~{late}")
    put(account, bucket, late, "i-3", "mesh.json")
    entry = read(account, bucket)["i-3"]
    assert (entry["Registered"], entry["Joined"], entry["Key"]) == (
        False,
        late,
        f"rows/{late}/{ROLE}:i-3/mesh.json",
    )


def test_a_row_that_is_half_written_is_none(account: Account, bucket: str) -> None:
    """Cut off JSON is as if it were not there; the referee's folder is no member."""
    key = f"rows/{RUN}/{ROLE}:i-1/mesh.json"
    account.client("s3").put_object(Bucket=bucket, Key=key, Body=b'{"member_id": ')
    account.client("s3").put_object(Bucket=bucket, Key=f"rows/{RUN}/referee/verdict-mesh.json", Body=b"{}")
    found = read(account, bucket)
    assert {key: item["Row"] for key, item in found.items()} == {"i-1": None}


def test_a_stack_without_the_outputs_has_no_rows(account: Account) -> None:
    """Nothing is asked."""
    assert node_rows.read(Reader(account.session), {}, NOW_S) == {"Nodes": []}
