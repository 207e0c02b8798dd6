"""A member that cannot take part, because its launcher's variables are not whole or not its own."""

from __future__ import annotations

import time
from typing import Mapping, Optional

from diagnosis.launchers import Claim, Conflict, conflict_words
from diagnosis.report import Diagnosis, NodeReport, Verdict
from probe.board import BoardError
from probe.by_launcher import LAUNCHER_VARIABLES, unfinished_place
from probe.farewell import LEFT
from probe.members import Member
from probe.place import Wish
from probe.preflight import distributed_environment, read_host_facts
from probe.rows import MESH_ROW, Say, dump


def tell_others(
    wish: Wish, environ: Mapping[str, str], say: Say, claim: Optional[Claim] = None
) -> Optional[NodeReport]:
    """Leave a row without probes, so that the others name this member's fault and do not wait for it.

    claim: of the launcher that started it, where torch's own variables are another's.

    Returns:
        The row; None where there is nobody to tell.
    """
    place = unfinished_place(wish, environ, claim)
    if place is None:
        return None
    own = Member(member_id=place.member_id, address=place.address, master_port=0, ports=())
    row = NodeReport(
        run=place.run,
        member_id=place.member_id,
        address=place.address,
        name=place.name,
        rank=place.rank,
        world_size=place.world_size,
        master_address=place.master_address,
        started_at=time.time(),
        finished_at=time.time(),
        host=read_host_facts(place.address, environ),
    )
    try:
        place.board.post(own.registration(), b"")
        place.board.post(MESH_ROW, dump(row))
        place.board.post(LEFT, b"")
    except BoardError as error:
        say(f"the other members could not be told: {error}")
    return row


def env_missing(text: str, environ: Mapping[str, str]) -> Diagnosis:
    """The answer of a member some of whose launcher variables are not set."""
    from diagnosis.causes import finding  # noqa: PLC0415 - the catalogue, only where it is needed

    seen = distributed_environment(environ)
    missing = [name for name in LAUNCHER_VARIABLES if not environ.get(name)]
    cause = finding(
        "env-missing",
        f"node:{environ['RANK']}" if environ.get("RANK", "").isdigit() else "cluster",
        summary=text,
        evidence=tuple(f"{name}={value}" for name, value in seen.items()),
        fields={"name": missing[0]},
    )
    return Diagnosis(verdict=Verdict.FAIL, causes=(cause,))


def launchers_disagree(conflict: Conflict) -> Diagnosis:
    """FAIL where it is seen who started this process; else UNKNOWN, with all that was told."""
    from diagnosis.leftover import left_over  # noqa: PLC0415 - as above

    subject = "cluster" if conflict.right is None else f"node:{conflict.right.rank}"
    cause = left_over(conflict, subject)
    if conflict.right is not None:
        return Diagnosis(verdict=Verdict.FAIL, causes=(cause,))
    summary, _ = conflict_words(conflict)
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        candidates=(cause,),
        next_command="ps -o pid,ppid,args -p $PPID; env | grep -E 'RANK|SIZE|PROCID|NTASKS'",
        unanswered=(f"cluster: {summary}",),
    )
