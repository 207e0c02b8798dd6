"""`check --bundle FILE`: what a colleague needs to look into it, in one archive, without secrets."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import tarfile
import time
import uuid
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Set

from cluster.serial import encode
from diagnosis import render
from diagnosis.report import Diagnosis, NodeReport, Verdict
from probe.board import BoardError
from probe.bundle_sources import Piece, read_host
from probe.capture import Capture
from probe.check import Answer
from probe.place import DiscoverError
from probe.redact import Redactor
from probe.row_file import ROW_NAME
from probe.rows import Say

FOLDER = "fullmesh-bundle"
SUFFIX = ".tar.gz"


def check_target(path: str) -> None:
    """
    Raises:
        DiscoverError: the bundle cannot be written there; told before anything is probed.
    """
    folder = os.path.dirname(path) or "."
    if os.path.lexists(path):
        raise DiscoverError(f"--bundle {path}: it exists and is not overwritten; give another name")
    if not os.path.isdir(folder):
        raise DiscoverError(f"--bundle {path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiscoverError(f"--bundle {path}: cannot write in {folder}; give a folder of your own")


@contextlib.contextmanager
def bundled(
    path: str, stage: Callable[[Say], contextlib.AbstractContextManager[Answer]], say: Say
) -> Iterator[Answer]:
    """The stage's answer, as it is; the bundle is written when the stage is over, also where it failed.

    Raises:
        DiscoverError, BoardError: as the stage, or the bundle cannot be written there.
    """
    check_target(path)
    capture = Capture()
    diagnosis = Diagnosis(verdict=Verdict.UNKNOWN, unanswered=("the check did not come to an answer",))
    row: Optional[NodeReport] = None
    try:
        with capture, stage(say) as answer:
            diagnosis, row = answer.diagnosis, answer.kept
            yield answer
    except (DiscoverError, BoardError) as error:
        diagnosis = dataclasses.replace(diagnosis, unanswered=(str(error),))
        _leave(path, diagnosis, row, capture, say)
        raise
    _leave(path, diagnosis, row, capture, say)


def _leave(path: str, diagnosis: Diagnosis, row: Optional[NodeReport], capture: Capture, say: Say) -> None:
    """Write it and say so; a bundle that cannot be written changes no verdict."""
    say("bundle: gathering what this host tells")
    try:
        removed = write_bundle(path, diagnosis, row, capture, dict(os.environ)).removed
    except OSError as error:
        say(f"bundle: {path} cannot be written: {error.strerror}")
        return
    say(f"bundle: {path} ({sum(removed.values())} secrets and names were taken out, see its removed.txt)")


def write_bundle(
    path: str,
    diagnosis: Diagnosis,
    row: Optional[NodeReport],
    capture: Capture,
    environ: Mapping[str, str],
) -> Redactor:
    """Gather, redact and pack; the file appears whole or not at all, for its owner alone.

    row: this member's own; None = it has none.

    Returns:
        What was removed.

    Raises:
        OSError: it cannot be written, or another one took the name meanwhile.
    """
    redactor = Redactor(environ)
    files = pack(diagnosis, row, capture, environ, redactor)
    unfinished = os.path.join(os.path.dirname(path) or ".", f".{uuid.uuid4().hex}{SUFFIX}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, data in files.items():
                # No owner: a user's name is nobody's business.
                entry = tarfile.TarInfo(f"{FOLDER}/{name}")
                entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
        os.link(unfinished, path)  # unlike a rename it never overwrites
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
    return redactor


def pack(
    diagnosis: Diagnosis,
    row: Optional[NodeReport],
    capture: Capture,
    environ: Mapping[str, str],
    redactor: Redactor,
) -> Dict[str, bytes]:
    """Name -> content of every file of the bundle, redacted."""
    texts: Dict[str, str] = {}
    notes: List[str] = []
    for piece in _pieces(diagnosis, row):
        if piece.text:
            texts[piece.name] = redactor.text(piece.name, piece.text)
        notes.append(f"{piece.name}: {piece.problem or ('whole' if piece.text else 'empty')}")
    texts["environment.txt"] = redactor.variables("environment.txt", environ)
    notes.append("environment.txt: whole, but for what was removed")
    # A second time: what one source gave away as a secret may stand bare in another.
    files = {name: redactor.text(name, text).encode(errors="replace") for name, text in texts.items()}
    if capture.problem:
        notes.append(f"capture.pcap: {capture.problem}")
    else:
        files["capture.pcap"] = capture.pcap(_ports(row))
        what = "SYN, FIN and RST of the check's own ports, and ICMP; no payload"
        notes.append(f"capture.pcap: {what}{'; ' if capture.cut else ''}{capture.cut}")
    files["removed.txt"] = redactor.listing().encode()
    head = "What is in this bundle, and what could not be had.\n\n"
    manifest = head + "\n".join(redactor.text("contents.txt", note) for note in notes) + "\n"
    return {"contents.txt": manifest.encode(), **files}


def _pieces(diagnosis: Diagnosis, row: Optional[NodeReport]) -> Iterator[Piece]:
    yield Piece("verdict.txt", render.to_terminal(diagnosis))
    yield Piece("verdict.json", render.to_json(diagnosis))
    if row is None:
        yield Piece(ROW_NAME, "", "this member has no row")
    else:
        yield Piece(ROW_NAME, json.dumps(encode(row), indent=1) + "\n")
    yield from read_host()


def _ports(row: Optional[NodeReport]) -> Set[int]:
    """Every port that the check itself listened on or connected to."""
    if row is None:
        return set()
    ports = {listener.port for listener in row.listeners or ()} | {probe.port for probe in row.probes or ()}
    return ports | ({row.master_port} if row.master_port else set())
