"""Where wrong answers lie, and whether the peer had a reason to be gone."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Set

from diagnosis.case import Case
from diagnosis.matrix import Flow, Pair
from diagnosis.opinion import Opinion
from diagnosis.patterns import FEW_PAIRS, find
from diagnosis.report import ConnectOutcome, Finding


def listener_may_be_gone(case: Case, flow: Flow) -> bool:
    """Whether the target had no reason to listen any more: it sent no row, or its time was over."""
    report = case.members[flow.destination].report
    started_at = case.matrix.probes[flow].started_at
    if report is None:
        return True
    until = report.listens_until or report.finished_at
    return until is not None and started_at is not None and started_at > until


def probed_late(case: Case, place: int) -> Opinion:
    return Opinion(unanswered=(f"{case.subject(place)}: {case.name(place)} was probed after its end",))


def by_place(case: Case, flows: Set[Flow], named: Callable[[str, Set[Flow]], Finding]) -> List[Finding]:
    """One finding a place: the cluster, a node whose side fails with everybody, else the pair.

    Pairs all over the place are one finding of the cluster: nobody reads thousands.
    """
    if not flows:
        return []
    by_pair: Dict[Pair, Set[Flow]] = {}
    for flow in flows:
        by_pair.setdefault(flow.pair, set()).add(flow)
    dead = set(by_pair)
    working = {flow.pair for flow in case.matrix.with_outcome(ConnectOutcome.CONNECTED)}
    pattern = find(dead, dead | working)
    if pattern.whole and len(case.members) > 2:
        return [named("cluster", flows)]

    def of(pairs: Iterable[Pair]) -> Set[Flow]:
        return {flow for pair in pairs for flow in by_pair[pair]}

    found = [named(case.subject(item.node), of(item.pairs)) for item in pattern.isolated]
    rest = dead.difference(*(item.pairs for item in pattern.isolated))
    if len(rest) > max(2 * len(case.members), FEW_PAIRS):
        return [*found, named("cluster", of(rest))]
    if len(case.members) == 2:
        return [*found, *(named(case.subject(pair[1]), of([pair])) for pair in sorted(rest, key=_by_end))]
    return [*found, *(named(case.pair_subject(pair), of([pair])) for pair in sorted(rest))]


def _by_end(pair: Pair) -> Pair:
    return (pair[1], pair[0])
