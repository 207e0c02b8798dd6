"""Connections that are answered wrongly: refused, accepted in silence, or without a route."""

from __future__ import annotations

from typing import Set

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import count, flow_order
from diagnosis.matrix import Flow
from diagnosis.opinion import Opinion, total
from diagnosis.paths import judge_paths
from diagnosis.peers import by_place
from diagnosis.refusals import judge_refusals
from diagnosis.report import ConnectOutcome, Finding
from diagnosis.silence import judge_silence


def judge_answers(case: Case) -> Opinion:
    """Causes of every answer that is not an echo, against proven listeners."""
    return total((judge_paths(case), judge_refusals(case), _unroutable(case), judge_silence(case)))


def _unroutable(case: Case) -> Opinion:
    flows = case.matrix.without_route()
    silent = case.matrix.with_outcome(ConnectOutcome.TIMED_OUT)

    def named(subject: str, found: Set[Flow]) -> Finding:
        first = min(found, key=flow_order)
        back = {(flow.destination, flow.source) for flow in found}
        unanswered = {flow for flow in silent if flow.pair in back}
        return finding(
            "route-missing",
            subject,
            summary=f"{case.name(first.source)} has no route to {case.members[first.destination].address} "
            f"({count(case, found)}, network unreachable)",
            evidence=[*case.evidence(found), *case.evidence(unanswered)],
            fields=case.fields(first.source, first.destination),
            at_s=case.at_s(found),
        )

    return Opinion(causes=tuple(by_place(case, flows, named)))
