"""clock-skew: whose clock is off, by what the members measured of each other."""

from __future__ import annotations

from typing import List, Optional, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.clocks import SKEW_S
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.report import Finding


def judge_skew(case: Case) -> Opinion:
    """One finding a node where most clocks agree; one of the cluster where nobody can say who is right."""
    off = case.clocks.off()
    if not off:
        return NOTHING
    if not case.clocks.most_agree():
        off = _by_true_time(case)
    if off:
        return Opinion(causes=tuple(_node(case, place) for place in off))
    return Opinion(causes=(_cluster(case),))


def _by_true_time(case: Case) -> Tuple[int, ...]:
    """Members whose own time service says that they are off, where it says so of every one or not."""
    told = {place: _chrony(case, place) for place in case.clocks.offsets}
    if any(value is None for value in told.values()):
        return ()
    return tuple(place for place, value in sorted(told.items()) if value is not None and abs(value) > SKEW_S)


def _chrony(case: Case, place: int) -> Optional[float]:
    report = case.members[place].report
    return report.host.clock_offset_s if report and report.host else None


def _node(case: Case, place: int) -> Finding:
    offset = case.clocks.offsets[place]
    words = f"{abs(offset.offset_s):.3f} s {'ahead of' if offset.offset_s > 0 else 'behind'} the others"
    return finding(
        "clock-skew",
        case.subject(place),
        summary=f"the clock of {case.name(place)} is {words}",
        evidence=_readings(case, place),
        fields=case.fields(place),
    )


def _cluster(case: Case) -> Finding:
    offsets = case.clocks.offsets
    spread = max(o.offset_s for o in offsets.values()) - min(o.offset_s for o in offsets.values())
    shown = sorted(offsets, key=lambda place: -abs(offsets[place].offset_s))[:NAMED_AT_MOST]
    lines = [line for place in shown for line in _readings(case, place)[:1]]
    return finding(
        "clock-skew",
        "cluster",
        summary=f"clocks are up to {spread:.3f} s apart, and no majority of them agrees",
        evidence=[*dict.fromkeys(lines), "which of them is right is not known"],
        fields=case.fields(),
    )


def _readings(case: Case, place: int) -> List[str]:
    """What peers read of this clock, the most exact first."""
    found = sorted(
        (offset.error_s, peer, offset) for (peer, of), offset in case.clocks.pairs.items() if of == place
    )
    lines = [
        f"{case.subject(place)} clock minus that of {case.subject(peer)}: {offset.offset_s:+.3f} s "
        f"(within {1000 * offset.error_s:.1f} ms)"
        for _, peer, offset in found[:NAMED_AT_MOST]
    ]
    chrony = _chrony(case, place)
    if chrony is not None:
        lines.append(f"{case.subject(place)} clock minus true time, as chrony knows it: {chrony:+.3f} s")
    return lines
