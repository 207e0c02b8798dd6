"""`report`: the verdict of a run that is over, read at the place where its members met.

The verdict that stands is shown as it was given. Where none does, what the members left is judged
now, as `check --merge` would.
"""

from __future__ import annotations

import os
from typing import Tuple

from cluster.keys import COLLECTIVE_ROW, FAILED_ROW, MESH_ROW, STAGES, run_prefix, verdict_name
from diagnosis.render import html_page, html_report
from diagnosis.report import Diagnosis
from probe.board import Board, BoardContentError, DirectoryBoard
from probe.merge import Gathered, MergeError, judge_together
from probe.place import DiscoverError
from probe.rows import Listing, Say, read_reports, read_verdict, row_names
from probe.s3_place import SCHEME, bucket_board

# A member's later row holds all of the earlier one.
_ROWS_LATEST_FIRST = (COLLECTIVE_ROW, MESH_ROW, FAILED_ROW)


def read_evidence(where: str, say: Say) -> Diagnosis:
    """The verdict of the run at `where`.

    Args:
        where: s3://BUCKET/rows/RUN, a folder with that run's objects (MEMBER/OBJECT), or any object of it,
            as the stack's output `Evidence` and its event name them.

    Raises:
        DiscoverError: `where` is no such place.
        BoardError: it cannot be read, holds nothing of a run, or no verdict and rows of several attempts.
    """
    board = _board(where)
    listing = Listing(names=board.names())
    for stage in reversed(STAGES):
        names = row_names(listing, (verdict_name(stage),))
        if names:
            # One that left a member out may have been given again by that member, with itself.
            verdicts = {name: read_verdict(board, name) for name in names}
            name = max(names, key=lambda name: len(verdicts[name].nodes))
            say(f"verdict: {board.where(name)}")
            return verdicts[name]
    rows = [
        Gathered(board.where(name), row)
        for name in _latest_rows(listing)
        for row in read_reports(board, (name,), say)
    ]
    if not rows:
        raise BoardContentError(
            f"{where} holds neither a verdict ({', '.join(map(verdict_name, STAGES))}) nor a member's row; "
            "give s3://BUCKET/rows/RUN as the stack's output Evidence does, or a copy of that folder"
        )
    say(f"no verdict stands at {where}: {len(rows)} rows are judged now")
    try:
        return judge_together(rows)
    except MergeError as error:
        raise BoardContentError(str(error)) from error


def write_page(diagnosis: Diagnosis, path: str) -> None:
    """The verdict as a page to open in a browser.

    Raises:
        DiscoverError: the file cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(html_page("fullmesh report", html_report(diagnosis)))
    except OSError as error:
        raise DiscoverError(
            f"cannot write {path}: {error.strerror}; give --html FILE in a folder of yours"
        ) from error


def _latest_rows(listing: Listing) -> Tuple[str, ...]:
    latest = {
        name.rpartition("/")[0]: name
        for kind in reversed(_ROWS_LATEST_FIRST)
        for name in row_names(listing, (kind,))
    }
    return tuple(sorted(latest.values()))


def _board(where: str) -> Board:
    if not where.startswith(SCHEME):
        folder = where if os.path.isdir(where) else os.path.dirname(os.path.dirname(os.path.abspath(where)))
        if not os.path.exists(where):
            raise DiscoverError(f"{where} does not exist; give a run's folder, or s3://BUCKET/rows/RUN")
        return DirectoryBoard(folder, member_id="")
    bucket, _, key = where[len(SCHEME) :].partition("/")
    before, found, after = f"/{key}".rpartition("/rows/")
    run = after.partition("/")[0]
    if not found or not run:
        raise DiscoverError(
            f"{where} names no run; give s3://BUCKET/rows/RUN (runs of a bucket: aws s3 ls s3://{bucket}/rows/)"
        )
    return bucket_board(bucket, before.strip("/"), run_prefix(run))
