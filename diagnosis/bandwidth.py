"""bandwidth-below-baseline: links of the ring against what their instance types are guaranteed.

Judged only where EC2 told the baseline: a figure without one is shown, and says nothing. It never
decides the verdict, for the mesh and the sums are right all the same.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Set, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.matrix import Pair
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.report import Finding, PairVerdict

# One flow gets no more of a larger instance, unless both are in one cluster placement group
# (docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html).
SINGLE_FLOW_GBIT_PER_S = 5.0
# Of it: headers, Gloo's own work and a neighbour's burst take some.
SHARE = 0.8


def judge_bandwidth(case: Case) -> Opinion:
    """One finding a place: the cluster, a node whose both links are slow, else the link."""
    expected = {pair: value for pair in measured(case) if (value := expected_gbit_per_s(case, pair))}
    slow = {pair for pair, value in expected.items() if measured(case)[pair] < SHARE * value}
    if not slow:
        return NOTHING
    if slow == set(expected) and len(case.members) > 2:
        return Opinion(causes=(_finding(case, "cluster", sorted(slow)),))
    found: List[Finding] = []
    told: Set[Pair] = set()
    for place in range(len(case.members)):
        around = {pair for pair in slow if place in pair}
        if len(around) == 2 and len(case.members) > 2 and not around & told:
            found.append(_finding(case, case.subject(place), sorted(around)))
            told |= around
    rest = sorted(slow - told)
    found += [
        _finding(case, case.pair_subject(pair), [pair]) for pair in rest if (pair[1], pair[0]) not in told
    ]
    return Opinion(causes=tuple(found))


def with_links(case: Case, pairs: Sequence[PairVerdict]) -> Tuple[PairVerdict, ...]:
    """The pairs of the report with what their links carried, and what they should."""
    places = {member.rank: place for place, member in enumerate(case.members)}
    rates = measured(case)

    def filled(pair: PairVerdict) -> PairVerdict:
        key = (places[pair.source], places[pair.destination])
        if key not in rates:
            return pair
        expected = expected_gbit_per_s(case, key)
        return dataclasses.replace(pair, gbit_per_s=rates[key], baseline_gbit_per_s=expected)

    return tuple(map(filled, pairs))


def measured(case: Case) -> Dict[Pair, float]:
    """(rank before, rank) by place -> what came, in Gbit/s."""
    by_rank = {member.rank: place for place, member in enumerate(case.members)}
    found: Dict[Pair, float] = {}
    for place, member in enumerate(case.members):
        result = member.report.collective if member.report else None
        before = by_rank.get((member.rank - 1) % len(case.members))
        if before is None or before == place or result is None:
            continue
        if result.link_gbit_per_s is not None:
            found[before, place] = result.link_gbit_per_s
    return found


def expected_gbit_per_s(case: Case, pair: Pair) -> Optional[float]:
    """The smaller baseline of both ends, as far as one flow gets it; None where one is not known."""
    baselines = [_baseline(case, place) for place in pair]
    known = [value for value in baselines if value is not None]
    return min(*known, SINGLE_FLOW_GBIT_PER_S) if len(known) == 2 else None


def _baseline(case: Case, place: int) -> Optional[float]:
    if case.snapshot is None:
        return None
    instance = case.snapshot.instances.get(case.members[place].member_id)
    return case.expectation.baselines.get(instance.instance_type) if instance is not None else None


def _finding(case: Case, subject: str, pairs: Sequence[Pair]) -> Finding:
    rates = measured(case)
    worst = min(pairs, key=lambda pair: rates[pair])
    source, destination = (case.name(place) for place in worst)
    expected = expected_gbit_per_s(case, worst)
    lines = [
        f"{case.pair_subject(pair)} {rates[pair]:.2f} Gbit/s of {expected_gbit_per_s(case, pair):g} Gbit/s"
        for pair in pairs
    ]
    instance = case.snapshot.instances.get(case.members[worst[1]].member_id) if case.snapshot else None
    return finding(
        "bandwidth-below-baseline",
        subject,
        summary=f"{rates[worst]:.2f} Gbit/s came from {source} to {destination}, where the instance types' "
        f"baseline gives one flow {expected:g} Gbit/s",
        evidence=[*lines[:NAMED_AT_MOST], f"all {len(rates)} links of the ring were busy at once, over Gloo"],
        fields={
            **case.fields(worst[1], worst[0]),
            "instance_type": instance.instance_type if instance else None,
        },
    )
