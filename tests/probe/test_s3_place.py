"""`--meet s3://BUCKET/PREFIX`: real members over the embedded S3, and what S3 may refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probe.board import BoardError, NowhereError
from probe.place import DiscoverError
from probe.s3_place import s3_board
from tests.probe.aws_server import REGION, Answer, Asked, answering

CHECKOUT = Path(__file__).resolve().parents[2]
CHECK = [sys.executable, "-m", "probe", "check", "--json", "--no-collective"]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG"}
EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


def members(count: int, *arguments: str, **variables: str) -> list[tuple[int, Any, str]]:
    """(exit status, answer, progress) of that many `check` at once, each at a loopback address of its own."""
    started = [
        subprocess.Popen(
            [*CHECK, *arguments, "--address", f"127.0.0.{rank + 61}"],
            cwd=CHECKOUT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    ended = [(process, *process.communicate(timeout=120)) for process in started]
    return [(process.returncode, json.loads(out) if out else None, log) for process, out, log in ended]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Keys for a client whose endpoint the test gives."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def error(status: int, code: str, more: str = "", **headers: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>no</Message>{more}</Error>".encode()
    return Answer(
        status=status, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def test_three_members_meet_in_a_bucket(cloud: Any, endpoint: str) -> None:
    """Rows lie below the prefix and the run's name, and a second check of that name is refused."""
    cloud("s3").create_bucket(Bucket="team-b", CreateBucketConfiguration={"LocationConstraint": REGION})
    check = ("--meet", "s3://team-b/mesh/checks/", "--nodes", "3", "--run", "first")
    ended = members(3, *check, AWS_REGION=REGION)
    assert [status for status, _, _ in ended] == [0, 0, 0], [log for _, _, log in ended]
    assert [len(answer["pairs"]) for _, answer, _ in ended] == [6, 6, 6]
    keys = [item["Key"] for item in cloud("s3").list_objects_v2(Bucket="team-b")["Contents"]]
    assert all(key.startswith("mesh/checks/rows/first/127.0.0.6") for key in keys)
    ((status, _, log),) = members(1, *check, AWS_REGION=REGION)
    assert status == 2
    assert "s3://team-b/mesh/checks/ holds the verdict of an earlier check of the name first" in log


def test_a_bucket_that_is_not_there_leaves_each_alone(cloud: Any, endpoint: str) -> None:
    """It is told at once, with what each member saw of itself."""
    check = ("--meet", "s3://no-such-bucket-b/x", "--nodes", "2")
    ((status, answer, _),) = members(1, *check, AWS_REGION=REGION)
    assert (status, answer["verdict"], answer["causes"], answer["candidates"]) == (3, "UNKNOWN", [], [])
    assert "NoSuchBucket" in answer["unanswered"][0]
    assert "correct the name in /etc/fullmesh/config.json or --meet" in answer["unanswered"][0]
    assert answer["row"]["listeners"]


def test_without_credentials_the_places_for_them_are_named(tmp_path: Path) -> None:
    """No keys anywhere: UNKNOWN within seconds, and what to set."""
    bare = {name: "" for name in KEYS}
    check = ("--meet", "s3://team-b/x", "--nodes", "2")
    ((status, answer, _),) = members(1, *check, **bare, AWS_EC2_METADATA_DISABLED="true", AWS_REGION=REGION)
    assert (status, answer["verdict"]) == (3, "UNKNOWN")
    assert "NoCredentials" in answer["unanswered"][0]
    assert "set AWS_ACCESS_KEY_ID" in answer["unanswered"][0]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(403, "AccessDenied"), r"allow s3:PutObject on team-b/p/rows/r/m-1/x in this node's role"),
        (error(400, "ExpiredToken"), r"renew the credentials"),
        (error(403, "InvalidAccessKeyId"), r"check AWS_ACCESS_KEY_ID"),
    ],
)
def test_what_is_refused_is_not_tried_for_a_minute(
    answers: pytest.MonkeyPatch, answer: Answer, words: str
) -> None:
    """A refusal says which permission or key is wrong, and that no waiting helps."""
    with answering(lambda asked, number: answer) as (url, _):
        answers.setenv("AWS_ENDPOINT_URL", url)
        board = s3_board("s3://team-b/p", "r", "m-1")
        with pytest.raises(NowhereError, match=words):
            board.post("x", b"")


def test_what_may_pass_is_tried_again(answers: pytest.MonkeyPatch) -> None:
    """A service that is overloaded, or not reached, may answer later."""
    with answering(lambda asked, number: error(503, "SlowDown")) as (url, _):
        answers.setenv("AWS_ENDPOINT_URL", url)
        answers.setattr("probe.transport.RetryPolicy.attempts", 1)
        board = s3_board("s3://team-b/p", "r", "m-1")
        with pytest.raises(BoardError) as caught:
            board.names()
    assert not isinstance(caught.value, NowhereError)


@pytest.mark.parametrize(
    "redirect",
    [
        error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"),
        error(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
    ],
)
def test_the_buckets_own_region_is_found(answers: pytest.MonkeyPatch, redirect: Answer) -> None:
    """S3 tells the region of a bucket to whoever asks in another one, and the next call is signed for it."""

    def answer(asked: Asked, number: int) -> Answer:
        return Answer(body=EMPTY) if "/eu-west-1/s3/" in asked.headers["authorization"] else redirect

    with answering(answer) as (url, asked):
        answers.setenv("AWS_ENDPOINT_URL", url)
        assert s3_board("s3://team-b/p", "r", "m-1").names() == ()
    assert "/us-east-1/s3/" in asked[0].headers["authorization"]


@pytest.mark.parametrize("meet", ["s3://", "s3://B", "s3://a b/x", "s3:///x", f"s3://team-b/{'x' * 600}"])
def test_what_is_no_bucket_is_refused(meet: str) -> None:
    """The error shows the value and the form."""
    with pytest.raises(DiscoverError, match=r"is not s3://BUCKET/PREFIX"):
        s3_board(meet, "r", "m")


def test_addresses_with_colons_stay_whole(answers: pytest.MonkeyPatch) -> None:
    """A member id of an IPv6 address is no role's."""
    key = b"p/rows/r/fd00::5-77-rank-1/mesh.json"
    listed = EMPTY.replace(b"<IsT", b"<Contents><Key>" + key + b"</Key></Contents><IsT")
    with answering(lambda asked, number: Answer(body=listed)) as (url, _):
        answers.setenv("AWS_ENDPOINT_URL", url)
        assert s3_board("s3://team-b/p", "r", "m-1").names() == ("fd00::5-77-rank-1/mesh.json",)
