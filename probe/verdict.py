"""From rows to a verdict that stands: whose turn it is, judge, post, signal, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import traceback
from typing import (
    TYPE_CHECKING,
    Callable,
    Generic,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)

from cluster.keys import STAGES, run_prefix
from diagnosis.report import Diagnosis, Finding, NodeReport, Verdict
from probe.board import BoardError
from probe.place import DEFAULT_MASTER_PORT, Place
from probe.rows import (
    COLLECTIVE_ROW,
    FAILED_ROW,
    MESH_ROW,
    Listing,
    Say,
    Waiter,
    dump,
    judging_name,
    read_reports,
    read_verdict,
    row_names,
    verdict_name,
)

if TYPE_CHECKING:  # what judging needs is loaded by the node that judges
    from cluster.snapshot import ClusterSnapshot
    from diagnosis.membership import Expectation

T = TypeVar("T")

# Rank k judges k times this after rank 0 may: long enough for a lower rank to read all rows
# and post. A second signal is ignored by CloudFormation, so a hasty first one would win.
TURN_S = 3.0

# Judging 64 broken nodes takes seconds on a busy machine. While the mark of a judging node
# stands, others wait this long for its verdict before they judge themselves.
JUDGE_PATIENCE_S = 30.0

# EC2's answers sharpen a verdict from "silent drop" to the rule, and tell whether anybody else
# gets in; without them a deployed cluster is UNKNOWN. Long enough for one call that is repeated.
RULES_PATIENCE_S = 12.0

MESH, COLLECTIVE = STAGES


class Background(Generic[T]):
    """A value that a thread fetches meanwhile; errors come out where it is asked for."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        self._value: List[T] = []
        self._error: Optional[BaseException] = None
        self.name = name

        def run() -> None:
            try:
                self._value.append(work())
            except BaseException as error:  # noqa: BLE001 - raised again in the asking thread
                self._error = error

        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def result(self, timeout_s: float) -> Optional[T]:
        """The value; None when it is not there within `timeout_s`."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return self._value[0] if self._value else None


class Publisher(Protocol):
    """What a judging node may ask of the account, and tell it. probe.publish.AwsPublisher is one."""

    def read_rules(self, member_ids: Sequence[str]) -> Optional[ClusterSnapshot]:
        """The account's rules around these members; None where there are none to read.

        Raises:
            Exception: they cannot be read; its text says why.
        """

    def read_baselines(self, instance_types: Sequence[str]) -> Mapping[str, float]:
        """Instance type -> guaranteed Gbit/s, as far as the account tells.

        Raises:
            Exception: it cannot be asked; its text says why.
        """

    def signal(self, diagnosis: Diagnosis, evidence: str) -> Tuple[str, ...]:
        """Tell whoever waits; what failed, as text."""

    def publish(self, diagnosis: Diagnosis, run: str, *, alone: bool = False) -> Tuple[str, ...]:
        """Send metrics and the log event; what failed, as text. alone: as of this node, no metrics."""


class Nobody:
    """The publisher of a cluster without AWS: nobody waits, and there are no rules to read."""

    def read_rules(self, member_ids: Sequence[str]) -> Optional[ClusterSnapshot]:  # noqa: ARG002 - a Publisher
        return None

    def read_baselines(self, instance_types: Sequence[str]) -> Mapping[str, float]:  # noqa: ARG002 - a Publisher
        return {}

    def signal(self, diagnosis: Diagnosis, evidence: str) -> Tuple[str, ...]:  # noqa: ARG002 - a Publisher
        return ()

    def publish(self, diagnosis: Diagnosis, run: str, *, alone: bool = False) -> Tuple[str, ...]:  # noqa: ARG002 - as above
        return ()


@dataclasses.dataclass
class Kept:
    """What this process keeps for itself of its stages.

    row: its newest row, as far as it is filled in.
    alone: whether its answer speaks for this node alone, because it could not use the meeting place.
    """

    row: Optional[NodeReport] = None
    alone: bool = False


@dataclasses.dataclass(frozen=True)
class Bench:
    """Everything a stage needs to bring its rows to a verdict."""

    place: Place
    waiter: Waiter
    publisher: Publisher
    say: Say
    signals: bool  # whether somebody waits for this run (a deploy), or it is a check by hand
    kept: Kept = dataclasses.field(default_factory=Kept)


def settle(bench: Bench, stage: str, own: Optional[NodeReport], rank: int, *, complete: bool) -> Diagnosis:
    """The verdict of a stage: another node's if one stands when this node's turn comes, else this node's.

    Args:
        own: this node's row, which counts even where the meeting place has lost it.
        rank: this node's turn.
        complete: every member's row is there; False = the deadline has passed.

    Raises:
        BoardError: the meeting place can no longer be read.
    """
    turn = time.monotonic() + rank * TURN_S
    judging_since: Optional[float] = None

    def my_turn_or_done(seen: Listing) -> bool:
        nonlocal judging_since
        now = time.monotonic()
        if judging_since is None and seen.having(judging_name(stage)):
            judging_since = now
        judging = judging_since is not None and now - judging_since < JUDGE_PATIENCE_S
        return seen.verdict(stage) is not None or (now >= turn and not judging)

    listing, _ = bench.waiter.until(my_turn_or_done, turn + JUDGE_PATIENCE_S)
    name = listing.verdict(stage)
    if name is not None:
        standing = read_verdict(bench.place.board, name)
        if not came_too_late(standing, bench.place) or stage != MESH:
            bench.say(f"verdict of {name.partition('/')[0]}")
            return counted(standing, bench.place)
        bench.say(f"the verdict of {name.partition('/')[0]} does not know this member: judged again")
    return _judge_and_tell(bench, stage, own, listing, complete=complete)


def holds(diagnosis: Diagnosis, member_id: str) -> bool:
    """Whether the verdict speaks of this member; another one's PASS proves nothing of it."""
    return any(node.member_id == member_id for node in diagnosis.nodes)


def came_too_late(standing: Diagnosis, place: Place) -> bool:
    """Whether others judged a broken cluster without this member: its row may be what they missed."""
    return standing.verdict is not Verdict.PASS and not holds(standing, place.member_id)


def counted(standing: Diagnosis, place: Place) -> Diagnosis:
    """A verdict that stands, as it counts for this member: a PASS without it is UNKNOWN."""
    if standing.verdict is not Verdict.PASS or holds(standing, place.member_id):
        return standing
    return dataclasses.replace(
        standing,
        verdict=Verdict.UNKNOWN,
        unanswered=(
            *standing.unanswered,
            f"{place.name} ({place.member_id}, {place.address}) came after run {place.run} was judged: "
            "it is not among the proven members",
        ),
        next_command="sudo python3 /opt/fullmesh/fullmesh.pyz check --run NAME  # on every node"
        if place.config
        else None,
    )


def _judge_and_tell(
    bench: Bench, stage: str, own: Optional[NodeReport], listing: Listing, *, complete: bool
) -> Diagnosis:
    from diagnosis.membership import Expectation  # noqa: PLC0415 - as in `_judged`

    place = bench.place
    with contextlib.suppress(BoardError):  # only spares the others the work
        place.board.post(judging_name(stage), b"")
    members = listing.members()
    rules = Background(lambda: bench.publisher.read_rules([member.member_id for member in members]), "rules")
    started = time.monotonic()
    kinds = (MESH_ROW, FAILED_ROW) if stage == MESH else (MESH_ROW, COLLECTIVE_ROW, FAILED_ROW)
    reports = list(read_reports(place.board, row_names(listing, kinds), bench.say))
    if own is not None and not any(_same_row(own, report) for report in reports):
        reports.append(own)
    snapshot, problem = _rules(rules, bench.say)
    expectation = Expectation(
        nodes=place.nodes,
        master_port=place.master_port or DEFAULT_MASTER_PORT,
        ephemeral=place.config.ephemeral_ports if place.config else None,
        stages=(MESH,) if stage == MESH else (MESH, COLLECTIVE),
        registered={member.member_id: member.address for member in members},
        deadline_passed=not complete,
        cluster=place.config.cluster if place.config else "",
        rules_expected=place.config is not None,
        rules_problem=problem,
        baselines=_baselines(bench, snapshot) if stage == COLLECTIVE else {},
        met_on_a_port=place.on_a_port and len(place.known) < place.nodes,
    )
    diagnosis = _judged(reports, expectation, snapshot)
    diagnosis = dataclasses.replace(
        diagnosis,
        skipped=(*diagnosis.skipped, *place.skipped),
        timings_s={**diagnosis.timings_s, "judge": round(time.monotonic() - started, 3)},
    )
    bench.say(
        f"judged {len(reports)} rows: {diagnosis.verdict.value} {' '.join(c.id for c in diagnosis.causes)}"
    )
    return tell(bench, stage, diagnosis)


def _judged(
    reports: Sequence[NodeReport], expectation: Expectation, rules: Optional[ClusterSnapshot]
) -> Diagnosis:
    """The judgement; one that breaks is UNKNOWN, and is told like any other."""

    def work() -> Diagnosis:
        # Loaded here: only the judging node needs the catalogue, and not before its rows are there.
        from diagnosis.judge import judge  # noqa: PLC0415

        return judge(reports, expectation, snapshot=rules)

    try:
        judged = Background(work, "judge").result(JUDGE_PATIENCE_S)
        return judged or Diagnosis(
            verdict=Verdict.UNKNOWN,
            unanswered=(f"the judgement of {len(reports)} rows did not end within {JUDGE_PATIENCE_S:g} s",),
        )
    except Exception:  # noqa: BLE001 - whatever it is, a waiting deploy must hear UNKNOWN, not silence
        where = traceback.format_exc(limit=-3).strip()
        return Diagnosis(verdict=Verdict.UNKNOWN, unanswered=(f"the judgement itself failed: {where}",))


def _same_row(one: NodeReport, other: NodeReport) -> bool:
    return one.member_id == other.member_id and one.finished_at == other.finished_at


def _rules(rules: Background[Optional[ClusterSnapshot]], say: Say) -> Tuple[Optional[ClusterSnapshot], str]:
    """The account's rules, or why there are none."""
    try:
        snapshot = rules.result(RULES_PATIENCE_S)
        return snapshot, "" if snapshot else f"no answer of ec2 within {RULES_PATIENCE_S:g} s"
    except Exception as error:  # noqa: BLE001 - whatever it is, the rows are still judged
        say(f"the account's rules cannot be read: {error}")
        return None, str(error)


def _baselines(bench: Bench, snapshot: Optional[ClusterSnapshot]) -> Mapping[str, float]:
    """What the members' types are guaranteed; what cannot be read is not compared, and is no fault."""
    if snapshot is None:
        return {}
    types = {instance.instance_type for instance in snapshot.instances if instance.instance_type}
    try:
        return bench.publisher.read_baselines(sorted(types))
    except Exception as error:  # noqa: BLE001 - as in `_rules`
        bench.say(f"baselines of {', '.join(sorted(types))} cannot be read: {error}")
        return {}


def tell(bench: Bench, stage: str, diagnosis: Diagnosis) -> Diagnosis:
    """Post the verdict, signal it where somebody waits, publish it.

    What cannot be published is told in the verdict, as every cause that never decides; the verdict stays.
    """
    place = bench.place
    name = verdict_name(stage)
    errors: List[str] = []
    try:
        place.board.post(name, dump(diagnosis))
    except BoardError as error:
        errors.append(f"the verdict could not be posted: {error}")
    # The run's folder: short enough to stand beside the whole cause, and it holds every row, too.
    evidence = (
        f"s3://{place.config.bucket}/{run_prefix(place.run)}"
        if place.config is not None
        else place.board.where(f"{place.member_id}/{name}")
    )
    if bench.signals and (diagnosis.verdict is not Verdict.PASS or stage == COLLECTIVE):
        errors += bench.publisher.signal(diagnosis, evidence)
    errors += bench.publisher.publish(diagnosis, place.run)
    if not errors:
        return diagnosis
    for text in errors:
        bench.say(text)
    told = (_publish_failed(errors),)
    if diagnosis.candidates and not diagnosis.causes:  # undetermined: nothing stands among the causes
        diagnosis = dataclasses.replace(diagnosis, consequences=(*diagnosis.consequences, *told))
    else:
        diagnosis = dataclasses.replace(diagnosis, causes=(*diagnosis.causes, *told))
    try:
        place.board.post(name, dump(diagnosis))
    except BoardError as error:
        bench.say(f"the verdict could not be posted: {error}")
    return diagnosis


def _publish_failed(errors: Sequence[str]) -> Finding:
    from diagnosis.causes import finding  # noqa: PLC0415 - the catalogue, only where it is needed

    return finding(
        "publish-failed",
        "cluster",
        summary="the verdict stands, but not everything that shows it could be written",
        evidence=errors,
    )
