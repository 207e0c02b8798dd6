"""Small pieces that every rendering of a diagnosis shares: letters of outcomes, single lines."""

from __future__ import annotations

import statistics
from typing import Dict, Iterable, List, Optional, Tuple

from diagnosis.prose import plain
from diagnosis.report import CollectiveResult, ConnectOutcome, Diagnosis, PairVerdict, Verdict

MATRIX_UP_TO_NODES = 16

# One letter an outcome: the capital when all tried ports of the pair have it.
LETTERS: Dict[ConnectOutcome, Tuple[str, str]] = {
    ConnectOutcome.TIMED_OUT: ("T", "timed out (silent drop)"),
    ConnectOutcome.REFUSED: ("R", "refused"),
    ConnectOutcome.UNREACHABLE: ("U", "unreachable"),
    ConnectOutcome.SILENT: ("S", "connected, no echo"),
    ConnectOutcome.RESET: ("X", "reset"),
    ConnectOutcome.LOCAL_ERROR: ("L", "could not be tried"),
}
WORKS, UNTRIED = ".", "?"


def pair_letter(pair: PairVerdict) -> str:
    """One letter for all ports of a pair; small where only some of the ports fail."""
    outcomes = list(pair.outcomes.values())
    failed = [outcome for outcome in outcomes if outcome not in (None, ConnectOutcome.CONNECTED)]
    if failed:
        worst = next(outcome for outcome in LETTERS if outcome in failed)
        letter = LETTERS[worst][0]
        return letter if len(set(outcomes)) == 1 else letter.lower()
    return UNTRIED if not outcomes or None in outcomes else WORKS


def round_trips_ms(pairs: Iterable[PairVerdict]) -> Optional[Tuple[float, float, float]]:
    """(best, median, worst) round trip of all pairs in milliseconds."""
    trips = sorted(pair.round_trip_s * 1000 for pair in pairs if pair.round_trip_s is not None)
    return (trips[0], statistics.median(trips), trips[-1]) if trips else None


def pairs_line(diagnosis: Diagnosis) -> str:
    """How many ordered pairs work on every tried port."""
    working = sum(pair_letter(pair) == WORKS for pair in diagnosis.pairs)
    return f"{working} of {len(diagnosis.pairs)} ordered pairs work"


def collective_line(result: CollectiveResult) -> str:
    """The all_reduce in one line."""
    words = [
        f"all_reduce of {result.bytes / 2**20:g} MiB on {result.world_size} ranks: {result.outcome.value}"
    ]
    if result.time_s is not None:
        words.append(f"{result.time_s * 1000:.1f} ms")
    if result.algbw_gbit_per_s is not None:
        words.append(f"algbw {result.algbw_gbit_per_s:.2f} Gbit/s")
    if result.busbw_gbit_per_s is not None:
        words.append(f"busbw {result.busbw_gbit_per_s:.2f} Gbit/s")
    return plain(", ".join(words))


def figures(diagnosis: Diagnosis) -> List[str]:
    """What was measured, a line each."""
    lines = [pairs_line(diagnosis)] if diagnosis.pairs else []
    trips = round_trips_ms(diagnosis.pairs)
    if trips is not None:
        lines.append("round trip: best {:.2f} ms, median {:.2f} ms, worst {:.2f} ms".format(*trips))
    lines += [line for line in (_loss_line(diagnosis), _clocks_line(diagnosis)) if line]
    if diagnosis.collective is not None:
        lines.append(collective_line(diagnosis.collective))
    return [*lines, *_link_lines(diagnosis)]


def _link_lines(diagnosis: Diagnosis) -> List[str]:
    """The slowest link of the ring, against its baseline where that is known."""
    links = [pair for pair in diagnosis.pairs if pair.gbit_per_s is not None]
    if not links:
        return []
    slowest = min(links, key=lambda pair: pair.gbit_per_s or 0.0)
    baseline = slowest.baseline_gbit_per_s
    against = f"baseline {baseline:g} Gbit/s" if baseline is not None else "no baseline is known"
    return [
        f"slowest link of {len(links)}: {slowest.gbit_per_s:.2f} Gbit/s, from rank {slowest.source} to "
        f"{slowest.destination} ({against})"
    ]


def _loss_line(diagnosis: Diagnosis) -> str:
    """The worst pair's share of lost packets, and how many pairs were looked at."""
    shares = [pair.lost_share for pair in diagnosis.pairs if pair.lost_share is not None]
    if not shares:
        return "lost packets: not looked at" if diagnosis.pairs else ""
    looked_at = f"{len(shares)} of {len(diagnosis.pairs)} pairs looked at"
    return f"lost packets: at most {100 * max(shares):.1f} % ({looked_at})"


def _clocks_line(diagnosis: Diagnosis) -> str:
    """How far the clocks are apart, as far as they were read."""
    offsets = [node.clock_offset_s for node in diagnosis.nodes if node.clock_offset_s is not None]
    if len(offsets) < 2:
        return ""
    apart_ms = 1000 * (max(offsets) - min(offsets))
    of = "" if len(offsets) == len(diagnosis.nodes) else f" ({len(offsets)} of {len(diagnosis.nodes)} read)"
    return f"clocks: within {apart_ms:.1f} ms of each other{of}"


def headline(diagnosis: Diagnosis) -> str:
    """The verdict and its first cause, or what is missing."""
    if diagnosis.verdict is Verdict.PASS:
        one_host = len({node.address for node in diagnosis.nodes}) == 1
        proven = "every pair was proven" + (", all on one host" if one_host else "")
        return proven if diagnosis.pairs else "nothing is wrong"
    if diagnosis.causes:
        return ", ".join(dict.fromkeys(item.id for item in diagnosis.causes))
    if diagnosis.candidates:
        return "undetermined: " + " or ".join(dict.fromkeys(item.id for item in diagnosis.candidates))
    if diagnosis.exposed:
        return "others can reach the members"
    open_questions = len(diagnosis.unanswered)
    return f"{open_questions} question{'' if open_questions == 1 else 's'} without an answer"
