"""packet-loss: where the streams of the probe had to repeat what never arrived."""

from __future__ import annotations

from typing import Dict, List, Optional, Set

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import started
from diagnosis.matrix import Pair
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.patterns import find
from diagnosis.report import Finding, PathStream

# At 1 % one message in a hundred waits for a retransmission timer (200 ms and more), and each
# collective is as slow as its slowest message. EC2's network loses less than one in ten thousand.
LOSS_SHARE = 0.01
# As many that a burst of somebody else, or one lost acknowledgement, is no finding.
LOST_AT_LEAST = 5


def judge_loss(case: Case) -> Opinion:
    """One finding a place: the cluster, a node whose every pair loses, else the pair (both ways)."""
    streams = case.matrix.streams
    lossy = {pair for pair, stream in streams.items() if _loses(stream)}
    if not lossy:
        return NOTHING
    pattern = find(lossy, set(streams))
    if pattern.whole and len(case.members) > 2:
        return Opinion(causes=(_finding(case, "cluster", lossy, streams),))
    found = [
        _finding(case, case.subject(item.node), set(item.pairs), streams, item.node)
        for item in pattern.isolated
    ]
    rest = lossy.difference(*(item.pairs for item in pattern.isolated))
    for pair in sorted(rest):
        back = (pair[1], pair[0])
        if back in rest and back < pair:
            continue
        both = {pair, back} & rest
        found.append(_finding(case, case.pair_subject(pair), both, streams, pair[0]))
    return Opinion(causes=tuple(found))


def _loses(stream: PathStream) -> bool:
    lost = stream.lost or 0
    return lost >= LOST_AT_LEAST and lost >= LOSS_SHARE * stream.segments


def _finding(
    case: Case, subject: str, pairs: Set[Pair], streams: Dict[Pair, PathStream], place: Optional[int] = None
) -> Finding:
    lost = sum(streams[pair].lost or 0 for pair in pairs)
    segments = sum(streams[pair].segments for pair in pairs)
    where = _words(case, subject, pairs, place)
    first = min(pairs)
    lines = [_line(case, pair, streams[pair]) for pair in sorted(pairs)]
    return finding(
        "packet-loss",
        subject,
        summary=f"{where} loses {100 * lost / segments:.1f} % of its packets ({lost} of {segments} segments, "
        f"{len(pairs)} of {len(streams)} pairs)",
        evidence=[*lines[:NAMED_AT_MOST], *_more(len(lines) - NAMED_AT_MOST)],
        fields=case.fields(first[0], first[1]),
        at_s=started(case, [pair[0] for pair in pairs]),
    )


def _words(case: Case, subject: str, pairs: Set[Pair], place: Optional[int]) -> str:
    if subject == "cluster":
        return "the network between members"
    if subject.startswith("node:") and place is not None:
        return f"the way to and from {case.name(place)}"
    source, destination = min(pairs)
    return f"the way from {case.name(source)} to {case.name(destination)}" + (
        ", and back," if len(pairs) > 1 else ""
    )


def _line(case: Case, pair: Pair, stream: PathStream) -> str:
    addresses = " -> ".join(case.members[place].address for place in pair)
    return f"{case.pair_subject(pair)} {addresses}: {stream.lost} of {stream.segments} segments lost"


def _more(count: int) -> List[str]:
    return [f"and {count} more"] if count > 0 else []
