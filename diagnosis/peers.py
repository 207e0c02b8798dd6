"""Where wrong answers lie, and whether the peer had a reason to be gone."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Sequence, Set

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.matrix import Flow, Pair
from diagnosis.opinion import Opinion, total, undetermined
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


def ask_gone(
    case: Case, flows: Set[Flow], ids: Sequence[str], does: str, command: Callable[[int], str]
) -> Opinion:
    """Targets whose listener may be gone: candidates where no row came, else a question left open.

    ids: causes in order; does: what the target does, for a sentence; command: the deciding one, by target.
    """
    opinions = []
    for place in sorted({flow.destination for flow in flows}):
        subject, name = case.subject(place), case.name(place)
        if case.members[place].report is not None:
            opinions.append(Opinion(unanswered=(f"{subject}: {name} was probed after its end",)))
            continue
        own = {flow for flow in flows if flow.destination == place}
        opinions.append(
            undetermined(
                [(cause_id, subject) for cause_id in ids],
                why=f"{name} {does} and sent no row",
                evidence=case.evidence(own),
                next_command=command(place),
                fields=case.fields(place),
                at_s=case.at_s(own),
            )
        )
    return total(opinions)


def ask_each_target(case: Case, flows: Set[Flow], ask: Callable[[Set[Flow], str, int], Opinion]) -> Opinion:
    """One question a target, or one for all where there are many. ask: of flows, subject and target."""
    by_target: Dict[int, Set[Flow]] = {}
    for flow in flows:
        by_target.setdefault(flow.destination, set()).add(flow)
    if len(by_target) > NAMED_AT_MOST:
        return ask(flows, "cluster", min(by_target))
    opinions = []
    for place, found in sorted(by_target.items()):
        pairs = {flow.pair for flow in found}
        one = len(pairs) == 1 and len(case.members) > 2
        opinions.append(
            ask(found, case.pair_subject(next(iter(pairs))) if one else case.subject(place), place)
        )
    return total(opinions)


def by_place(case: Case, flows: Set[Flow], named: Callable[[str, Set[Flow]], Finding]) -> List[Finding]:
    """One finding a place: the cluster, a node whose side fails with everybody, else the pair (both ways).

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
    both = {pair for pair in rest if pair[0] < pair[1] and (pair[1], pair[0]) in rest}
    found += [named(case.pair_subject(pair), of([pair, (pair[1], pair[0])])) for pair in sorted(both)]
    one_way = (pair for pair in sorted(rest) if not both & {pair, (pair[1], pair[0])})
    return [*found, *(named(case.pair_subject(pair), of([pair])) for pair in one_way)]


def _by_end(pair: Pair) -> Pair:
    return (pair[1], pair[0])
