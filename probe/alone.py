"""The verdict of a node that cannot use the meeting place, and so speaks for itself alone."""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple

from diagnosis.report import Diagnosis, NodeReport, Verdict
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
    cause = finding(
        "storage-unreachable",
        f"node:{_rank(place, own)}",
        summary=f"{_named(place)} cannot use s3://{bucket}",
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
    """Elsewhere why the place is not reached is not decided here, so nothing is named."""
    from diagnosis.causes import finding  # noqa: PLC0415 - as above

    evidence = (str(error),)
    unanswered = (f"{place.name} ({place.address}) met nobody: {error}",)
    if place.master_address is None:  # a directory: no rank serves it
        return Diagnosis(verdict=Verdict.UNKNOWN, unanswered=unanswered)
    subject = f"node:{place.rank}" if place.rank is not None else "cluster"
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        unanswered=unanswered,
        candidates=(
            finding("master-unreachable", subject, summary="rank 0 cannot be reached", evidence=evidence),
            finding("peer-missing", "node:0", summary="rank 0 never came", evidence=evidence),
        ),
        next_command=f"getent hosts {place.master_address}; ip route get {place.master_address}",
    )
