"""The verdict of a node that cannot use the meeting place, and so speaks for itself alone."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import socket
from typing import List, Optional, Tuple

from diagnosis.report import Diagnosis, Finding, NodeReport, Verdict
from probe.board import BoardContentError, BoardError
from probe.members import address_order
from probe.place import Place
from probe.verdict import Bench


def without_meeting(bench: Bench, stage: str, error: BoardError, own: Optional[NodeReport]) -> Diagnosis:
    """UNKNOWN where the place cannot be read; where it cannot be reached, the cause if that is decided.

    Whoever waits is told and it is logged, but it is neither posted as the cluster's verdict
    nor counted in the cluster's figures.
    """
    place = bench.place
    bench.kept.alone = True
    if isinstance(error, BoardContentError):
        diagnosis = Diagnosis(
            verdict=Verdict.UNKNOWN,
            unanswered=(f"{_named(place)} cannot read what is at the meeting place: {error}",),
        )
    elif place.config is not None:
        diagnosis = _storage_unreachable(place, error, own)
    else:
        diagnosis = _met_nobody(place, error)
    if own is not None:
        diagnosis = dataclasses.replace(diagnosis, timings_s=own.timings_s)
        if place.config is None:
            diagnosis = _with_own(diagnosis, place, own)
    errors: Tuple[str, ...] = ()
    if bench.signals:
        errors += bench.publisher.signal(diagnosis, f"/var/log/fullmesh/{stage}.log on {place.member_id}")
    errors += bench.publisher.publish(diagnosis, place.run, alone=True)
    for text in errors:
        bench.say(text)
    return diagnosis


def _named(place: Place) -> str:
    return f"{place.name} ({place.member_id}, {place.address})"


def _storage_unreachable(place: Place, error: BoardError, own: Optional[NodeReport]) -> Diagnosis:
    """On AWS the place is the bucket, and not reaching it is a named cause, at this node."""
    from diagnosis.causes import finding  # noqa: PLC0415 - the catalogue, only where it is needed

    bucket = place.config.bucket if place.config else ""
    code = getattr(error.__cause__, "code", "")  # of an AwsError: the one word that tells most
    cause = finding(
        "storage-unreachable",
        f"node:{_rank(place, own)}",
        summary=f"{_named(place)} cannot use s3://{bucket}{f' ({code})' if code else ''}",
        evidence=(f"{place.member_id}: {error}",),
        fields={"bucket": bucket, "instance_id": place.member_id},
    )
    return Diagnosis(verdict=Verdict.FAIL, causes=(cause,))


def _rank(place: Place, own: Optional[NodeReport]) -> str:
    """The rank where it is known; a node that has not met all others has none yet, but its id."""
    if place.rank is not None:
        return str(place.rank)
    if own is None or len(own.members) != place.nodes or place.member_id not in own.members:
        return place.member_id
    ordered = sorted(own.members, key=lambda key: (address_order(own.members[key]), key))
    return str(ordered.index(place.member_id))


def _met_nobody(place: Place, error: BoardError) -> Diagnosis:
    """Elsewhere why the place is not reached is not decided by one node, so nothing is named for sure."""
    from diagnosis.causes import finding  # noqa: PLC0415 - as above

    unanswered = (f"{place.name} ({place.address}) met nobody: {error}",)
    if place.master_address is None or not place.on_a_port:
        return Diagnosis(verdict=Verdict.UNKNOWN, unanswered=unanswered)
    own = f"node:{place.rank}" if place.rank is not None else "cluster"
    fields = {"master_address": place.master_address, "master_port": place.master_port}
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        unanswered=unanswered,
        candidates=tuple(
            finding(cause_id, subject or own, summary=words, evidence=(str(error),), fields=fields)
            for cause_id, subject, words in _what_it_may_be(place.master_address, error.__cause__)
        ),
        next_command=f"getent hosts {place.master_address}; ip route get {place.master_address}",
    )


def _what_it_may_be(master: str, cause: Optional[BaseException]) -> List[Tuple[str, str, str]]:
    """(cause, subject, words) in order; subject "" = this node."""
    number = cause.errno if isinstance(cause, OSError) else None
    if isinstance(cause, socket.gaierror):
        return [
            ("master-addr-unresolvable", "", f"MASTER_ADDR={master} has no address here: {cause.strerror}")
        ]
    if number == errno.EADDRNOTAVAIL:  # rank 0 serves the meeting place at MASTER_ADDR
        words = f"rank 0 runs here, and MASTER_ADDR={master} is no address of this host"
        return [("public-address" if _is_public(master) else "master-addr-not-a-member", "", words)]
    if number == errno.EADDRINUSE:
        return [("port-in-use", "", "another process holds the port of the meeting place")]
    absent = ("peer-missing", "node:0", "rank 0 never came")
    unreachable = ("master-unreachable", "", "rank 0 cannot be reached")
    return [absent, unreachable] if number == errno.ECONNREFUSED else [unreachable, absent]


def _is_public(master: str) -> bool:
    try:
        return ipaddress.ip_address(master).is_global
    except ValueError:
        return False


def _with_own(diagnosis: Diagnosis, place: Place, own: NodeReport) -> Diagnosis:
    """With what this node's row alone shows: as candidates, since nobody has seen the others."""
    from diagnosis.causes import cause  # noqa: PLC0415 - as above
    from diagnosis.judge import Expectation, judge  # noqa: PLC0415 - as above

    expectation = Expectation(
        nodes=place.nodes, master_port=place.master_port or 0, registered=own.members, deadline_passed=False
    )
    seen = judge((own,), expectation)
    found: Tuple[Finding, ...] = tuple(item for item in seen.causes if cause(item.id).decides_verdict)
    told = {(item.id, item.subject) for item in found}
    others = [
        item for item in (*diagnosis.candidates, *seen.candidates) if (item.id, item.subject) not in told
    ]
    return dataclasses.replace(
        diagnosis,
        candidates=(*found, *others),
        consequences=(*seen.consequences, *(item for item in seen.causes if item not in found)),
        next_command=diagnosis.next_command or seen.next_command,
        unanswered=tuple(dict.fromkeys((*diagnosis.unanswered, *seen.unanswered))),
        nodes=seen.nodes,
        pairs=seen.pairs,
        skipped=place.skipped,
    )
