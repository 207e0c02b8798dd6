"""The commands behind `check` and `node`: take the place, run the stages, answer."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional

from diagnosis.report import CollectiveResult, Diagnosis, NodeReport, StepFailure, Verdict
from probe.alone import without_meeting
from probe.board import BoardError
from probe.collective_stage import prove_collective
from probe.discover import by_ec2 as place_on_ec2
from probe.discover import is_deployed, read_config, take_place
from probe.farewell import announce, leave
from probe.join import stands_for
from probe.node_files import keep_node_files
from probe.place import DiscoverError, EnvironmentIncomplete, LaunchConflicted, Place, Wish
from probe.row_file import check_writable, write_row
from probe.rows import MESH_ROW, Say, read_reports, row_names
from probe.run import await_verdict, bench_for, prove_mesh, report_failure
from probe.running_job import running_job
from probe.unstarted import env_missing, launchers_disagree, tell_others
from probe.verdict import COLLECTIVE, MESH, Bench


@dataclass(frozen=True)
class Answer:
    """The cluster's verdict, and whether this process is the one to show it.

    row: this member's own, where nobody else has it. kept: this member's own; None = it has none.
    """

    diagnosis: Diagnosis
    shown: bool = True
    row: Optional[NodeReport] = None
    kept: Optional[NodeReport] = None


@contextlib.contextmanager
def check(wish: Wish, say: Say, *, collective: bool) -> Iterator[Answer]:
    """Prove the mesh, then (where it passed, and there is torch) an all_reduce; signals nobody.

    The answer is there at once; leaving the context may wait for the others to have read it.

    Raises:
        DiscoverError, BoardError: this node's place cannot be told or taken.
    """
    environ = dict(os.environ)
    if wish.row is not None:
        check_writable(wish.row)
    try:
        with take_place(_with_run(wish, say), environ) as taken:
            timeout_s = wish.collective_timeout_s or taken.collective_timeout_s
            place = dataclasses.replace(taken, collective_timeout_s=timeout_s, idle_s=wish.idle_s or 0.0)
            job = None if wish.beside_job else running_job()
            if job is not None:
                say(f"{job}: MASTER_PORT and the all_reduce are left to it")
                place = dataclasses.replace(place, job=job, listens_on_master=False)
            bench = bench_for(place, say, signals=False)
            shown = place.local_rank == 0 and place.rank in (None, 0)
            diagnosis = keep_node_files(place, prove(bench, environ, collective=collective), say)
            _keep_row(wish, bench.kept.row, say)
            alone = bench.kept.alone
            kept = bench.kept.row
            yield Answer(diagnosis, shown=shown or alone, row=kept if alone else None, kept=kept)
            if not alone:
                leave(bench)
    except EnvironmentIncomplete as error:
        row = tell_others(wish, environ, say)
        _keep_row(wish, row, say)
        yield Answer(diagnosis=env_missing(str(error), environ), row=row, kept=row)
    except LaunchConflicted as error:
        row = tell_others(wish, environ, say, claim=error.conflict.right)
        _keep_row(wish, row, say)
        yield Answer(diagnosis=launchers_disagree(error.conflict), row=row, kept=row)


def _keep_row(wish: Wish, row: Optional[NodeReport], say: Say) -> None:
    """Write this member's row where that was asked for; a process that is no member has none."""
    if wish.row is None or row is None:
        return
    try:
        say(f"row: {write_row(wish.row, row)}")
    except OSError as error:
        say(f"row: {wish.row} cannot be written: {error.strerror}")


def prove(bench: Bench, environ: Mapping[str, str], *, collective: bool) -> Diagnosis:
    """The mesh, then (where it passed, and there is torch) an all_reduce."""
    if bench.place.local_rank:
        announce(bench)
        diagnosis = await_verdict(bench, MESH)
    else:
        diagnosis = prove_mesh(bench, environ)
    if collective and diagnosis.verdict is Verdict.PASS:
        diagnosis = _collective(bench, diagnosis, environ)
    return diagnosis


def _collective(bench: Bench, mesh: Diagnosis, environ: Mapping[str, str]) -> Diagnosis:
    """Both stages' verdict. Where no member has torch, the mesh's, with the collective SKIPPED."""
    if bench.place.local_rank:
        return prove_collective(bench, environ)
    listing = bench.waiter.look()
    names = row_names(listing, (MESH_ROW,))
    rows = read_reports(bench.place.board, names, bench.say)
    busy = [row.name for row in rows if row.job is not None]
    if busy:
        reason = f"a job runs on {', '.join(busy)}; for one beside it: check --collective"
        skipped = CollectiveResult(outcome=Verdict.SKIPPED, world_size=bench.place.nodes, error=reason)
        return dataclasses.replace(mesh, collective=skipped)
    without = [row.name for row in rows if row.host is not None and "torch" not in row.host.versions]
    if without and len(without) == len(names):  # a row that cannot be read tells nothing of its member
        reason = "torch is not installed for the Python of any member"
        bench.say(reason)
        skipped = CollectiveResult(outcome=Verdict.SKIPPED, world_size=bench.place.nodes, error=reason)
        return dataclasses.replace(mesh, collective=skipped)
    return prove_collective(
        bench, environ, unable=f"torch is not installed on {', '.join(without)}" if without else ""
    )


def node_stage(stage: str, say: Say) -> Answer:
    """`node mesh` or `node collective` of a deployed node; a PASS of the latter leaves the node's files.

    Raises:
        DiscoverError: this is no deployed node. Whoever waits for it was told, where that is possible.
    """
    environ = dict(os.environ)
    with _place_or_signal(say) as place:
        bench = bench_for(place, say, signals=True)
        earlier = False
        try:
            standing = stands_for(bench, stage, environ)
            earlier = standing is not None
            diagnosis = standing or (prove_mesh if stage == MESH else prove_collective)(bench, environ)
        except BoardError as error:
            diagnosis = without_meeting(bench, stage, error, None)
        if stage == COLLECTIVE or diagnosis.verdict is Verdict.FAIL:
            diagnosis = keep_node_files(place, diagnosis, say, earlier=earlier)
        return Answer(diagnosis=diagnosis)


def node_failed(step: str, status: int, output: str, say: Say) -> Answer:
    """`node failed`: a step of the start-up ended with `status`; `output` is its last lines.

    Raises:
        DiscoverError: as `node_stage`.
    """
    failure = StepFailure(step=step, exit_status=status, output=output)
    with _place_or_signal(say, failure) as place:
        diagnosis = report_failure(bench_for(place, say, signals=True), failure, dict(os.environ))
        if diagnosis.verdict is Verdict.FAIL:
            diagnosis = keep_node_files(place, diagnosis, say)
        return Answer(diagnosis=diagnosis)


@contextlib.contextmanager
def _place_or_signal(say: Say, failure: Optional[StepFailure] = None) -> Iterator[Place]:
    """A deployed node's place. A node that does not know its own still has the handle to tell it."""
    config = read_config()
    try:
        place = place_on_ec2(Wish())
    except DiscoverError as error:
        from probe.credentials import CredentialChain  # noqa: PLC0415 - http and ssl, only on AWS
        from probe.publish import AwsPublisher  # noqa: PLC0415 - as above

        evidence = [str(error)]
        if failure is not None:
            evidence.append(f"step {failure.step} ended with {failure.exit_status}: {failure.output[-500:]}")
        diagnosis = Diagnosis(
            verdict=Verdict.UNKNOWN,
            unanswered=tuple(evidence),
            next_command="sudo tail -n 100 /var/log/cloud-init-output.log",
        )
        for text in AwsPublisher(config, CredentialChain()).signal(diagnosis, "this node's log"):
            say(text)
        raise
    yield place


def _with_run(wish: Wish, say: Say) -> Wish:
    """On a deployed node a check without a name begins one of its own, and says how others join."""
    if wish.run or not is_deployed(wish, os.environ):
        return wish
    run = f"{read_config(wish.config_path).run}-check-{int(time.time())}"
    say(f"run on every other node, now: check --run {run}")
    return dataclasses.replace(wish, run=run)
