"""`check --merge`: rows that were gathered by hand, judged as if they had met."""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from cluster.serial import DecodeError, decode
from diagnosis.judge import judge
from diagnosis.membership import Expectation, rank_in_id
from diagnosis.report import SCHEMA_VERSION, Diagnosis, NodeReport, Verdict
from probe.place import DEFAULT_MASTER_PORT
from probe.row_file import ROW_NAME

MAX_FILE_BYTES = 64 * 1024 * 1024  # the row of 1,000 nodes is 1 MB
# Rows of one attempt overlap; clocks of hosts that nobody synchronised may be this far apart.
_CLOCKS_APART_S = 300.0


_GZIP = b"\x1f\x8b"


class MergeError(ValueError):
    """Files that are no rows, or rows that do not belong together; the text says which and what to give."""


@dataclass(frozen=True)
class Gathered:
    """A row and the file that it came from."""

    path: str
    row: NodeReport


def merge(paths: Sequence[str], *, nodes: Optional[int] = None, run: Optional[str] = None) -> Diagnosis:
    """The verdict over the rows in these files; whose row is not among them is not known.

    nodes: how many members there should be; None = as the rows say.
    run: which run's rows to take; None = all must be of one.

    Raises:
        MergeError: what cannot be judged together.
    """
    return judge_together(_of_one_run(_without_copies(_read_all(paths)), run), nodes=nodes)


def judge_together(gathered: Sequence[Gathered], *, nodes: Optional[int] = None) -> Diagnosis:
    """The verdict over rows of one run; whose row is not among them is not known.

    Raises:
        MergeError: they are not of one attempt.
    """
    _check_one_attempt(gathered)
    rows = _with_one_id_each([item.row for item in gathered])
    expected = nodes or _expected(rows)
    stages = ("mesh", "collective") if any(row.collective is not None for row in rows) else ("mesh",)
    registered = {member_id: address for row in rows for member_id, address in row.members.items()}
    ports = Counter(row.master_port for row in rows if row.master_port is not None)
    diagnosis = judge(
        rows,
        Expectation(
            nodes=expected or len(registered.keys() | {row.member_id for row in rows}),
            master_port=ports.most_common(1)[0][0] if ports else DEFAULT_MASTER_PORT,
            stages=stages,
            registered=registered,
            deadline_passed=False,  # a row that was not given is not a member that never came
        ),
    )
    return _with_gaps(diagnosis, known=expected is not None, collective=len(stages) > 1)


def _with_gaps(diagnosis: Diagnosis, *, known: bool, collective: bool) -> Diagnosis:
    """With what the rows leave open, so that it never reads as PASS."""
    unanswered = diagnosis.unanswered
    if not known:
        unanswered += ("cluster: how many members there should be is not known; give --nodes N",)
    skipped = diagnosis.skipped
    if not collective:
        skipped += ("cluster: an all_reduce; no row holds one, so the mesh alone was judged",)
    return dataclasses.replace(
        diagnosis,
        verdict=Verdict.UNKNOWN if unanswered and diagnosis.verdict is Verdict.PASS else diagnosis.verdict,
        unanswered=unanswered,
        skipped=skipped,
    )


# --- reading -------------------------------------------------------------------------------------


def _read_all(paths: Sequence[str]) -> List[Gathered]:
    found: List[Gathered] = []
    for path in paths:
        found += [Gathered(path, _row(path, document)) for document in _documents(path, _read(path))]
    return found


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise MergeError(
            f"cannot read {path}: {error.strerror}; give the files that check --row wrote"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise MergeError(f"{path} has more than {MAX_FILE_BYTES} bytes; a row has not")
    return data


def _row_of_bundle(path: str, data: bytes) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for entry in archive:
                if entry.isfile() and entry.name.endswith(f"/{ROW_NAME}") and entry.size <= MAX_FILE_BYTES:
                    file = archive.extractfile(entry)
                    return file.read() if file is not None else b""
    except (tarfile.TarError, OSError, EOFError) as error:
        raise MergeError(
            f"{path} is no bundle ({error}); give the files that check --bundle wrote"
        ) from error
    raise MergeError(f"{path} holds no {ROW_NAME}: that member had no row; contents.txt in it says why")


def _documents(path: str, data: bytes) -> List[Mapping[str, Any]]:
    """The row in a file: as --row wrote it, in a bundle, or in the answer of a node that met nobody."""
    if data.startswith(_GZIP):
        data = _row_of_bundle(path, data)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MergeError(f"{path} is not JSON ({error}); give the files that check --row wrote") from error
    if isinstance(document, dict) and isinstance(document.get("row"), dict):
        document = document["row"]
    if not isinstance(document, dict) or "member_id" not in document:
        raise MergeError(
            f"{path} holds no row of fullmesh check (no member_id); give the files that check --row wrote"
        )
    return [document]


def _row(path: str, document: Mapping[str, Any]) -> NodeReport:
    version = document.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise MergeError(
            f"{path} has schema_version {version!r}, and this fullmesh reads up to {SCHEMA_VERSION}; "
            "merge with the newest one that wrote a row"
        )
    try:
        return decode(NodeReport, document)
    except DecodeError as error:
        raise MergeError(f"{path} is no whole row: {error}") from error


# --- what belongs together -------------------------------------------------------------------------


def _without_copies(gathered: Iterable[Gathered]) -> List[Gathered]:
    """One of each row, however often it was given."""
    kept: Dict[str, Gathered] = {}
    for item in gathered:
        kept.setdefault(repr(item.row), item)
    return list(kept.values())


def _of_one_run(gathered: Sequence[Gathered], run: Optional[str]) -> List[Gathered]:
    runs: Dict[str, List[str]] = {}
    for item in gathered:
        runs.setdefault(item.row.run, []).append(item.path)
    if run is None and len(runs) > 1:
        told = "; ".join(f"{name!r}: {', '.join(paths[:3])}" for name, paths in sorted(runs.items()))
        raise MergeError(f"rows of {len(runs)} runs ({told}); choose one with --run NAME")
    if run is not None and run not in runs:
        raise MergeError(
            f"no row is of run {run!r}; there are {', '.join(map(repr, sorted(runs))) or 'none'}"
        )
    return [item for item in gathered if run in (None, item.row.run)]


def _check_one_attempt(gathered: Sequence[Gathered]) -> None:
    """Rows of earlier attempts prove nothing of this one, and look like members that are there twice."""
    latest = max(gathered, key=lambda item: _began(item.row))
    for item in gathered:
        until = max(_ended(item.row), item.row.listens_until or 0.0)
        if until + _CLOCKS_APART_S < _began(latest.row):
            raise MergeError(
                f"rows of different attempts: {item.path} ended at {_clock(until)}, {latest.path} began at "
                f"{_clock(_began(latest.row))}; give the rows of one attempt"
            )
    seen: Dict[Tuple[str, Optional[int]], Gathered] = {}
    for item in sorted(gathered, key=lambda item: _began(item.row)):
        row = item.row
        other = seen.setdefault((row.address, row.rank), item)
        if other.row.member_id != row.member_id and _ended(other.row) < _began(row):
            raise MergeError(
                f"two attempts of {row.name} ({row.address}): {other.path} until {_clock(_ended(other.row))} "
                f"and {item.path} from {_clock(_began(row))}; give one of them"
            )
        seen[row.address, row.rank] = item


def _began(row: NodeReport) -> float:
    return row.started_at or row.finished_at or 0.0


def _ended(row: NodeReport) -> float:
    return row.finished_at or _began(row)


def _clock(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at_s))


def _with_one_id_each(rows: Sequence[NodeReport]) -> List[NodeReport]:
    """Rows in which a member that was known but not met ("rank-2") has the id of its own row."""
    ids: Dict[int, set[str]] = {}
    for member_id in {row.member_id for row in rows} | {item for row in rows for item in row.members}:
        rank = rank_in_id(member_id)
        if rank is not None and member_id != f"rank-{rank}":
            ids.setdefault(rank, set()).add(member_id)
    names = {f"rank-{rank}": next(iter(found)) for rank, found in ids.items() if len(found) == 1}
    return [
        dataclasses.replace(
            row,
            members={names.get(key, key): address for key, address in row.members.items()},
            probes=None
            if row.probes is None
            else tuple(
                dataclasses.replace(probe, destination=names.get(probe.destination, probe.destination))
                for probe in row.probes
            ),
        )
        for row in rows
    ]


def _expected(rows: Sequence[NodeReport]) -> Optional[int]:
    """The size that most rows were told, the larger of two that are as frequent."""
    sizes = Counter(size for size in (row.nodes_expected or row.world_size for row in rows) if size)
    return max(sizes, key=lambda size: (sizes[size], size)) if sizes else None
