"""Settings of all nodes side by side: which must be equal, and which only differ.

Two ranks of torch 2.13.0 (CPU) that differ in one of `MUST_AGREE` were run, with rank 0 as the odd one
and with rank 1: none formed a group and got through its first all_reduce; some time out, some end with
a segmentation fault. The same two ranks work where they differ in USE_LIBUV, GLOO_ENABLE_STORE_V2_API,
GLOO_DISABLE_CONNECTION_RETRIES, or in TORCH_DISTRIBUTED_DEBUG between OFF and INFO. Other releases, and
more ranks, were not run.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import environments, odd_ones, started, torch_of
from diagnosis.membership import Member
from diagnosis.opinion import Opinion
from diagnosis.published import interface_value
from diagnosis.report import Finding, HostFacts
from diagnosis.variables import READ, without_effect

# What differs by its nature: each rank and each host has its own.
_OWN = re.compile(
    r"(^|_)(RANK|RANKID|PROCID|NODEID|LOCALID|LOCAL_SIZE|LOCALRANKID|LOCALNRANKS|LAUNCHER_PORT|ERROR_FILE)$"
    r"|^PMI_(FD|ID)$"
)
_VALUES_AT_MOST = 8
_TRUE = ("1", "y", "yes", "t", "true")  # c10d's getCvarBool


class Setting(NamedTuple):
    """means: what torch makes of a host's value: "" = as if it were not set, None = it refuses it (which
    is another fault). why: what happens where ranks differ.
    """

    means: Callable[[HostFacts], Optional[str]]
    why: str


def _flag(name: str, values: Sequence[str], *, any_case: bool = False) -> Callable[[HostFacts], str]:
    def means(host: HostFacts) -> str:
        value = host.environment.get(name, "")
        return "1" if (value.lower() if any_case else value) in values else ""

    return means


def _contexts(host: HostFacts) -> Optional[str]:
    """How many contexts GLOO_SOCKET_IFNAME makes."""
    value = interface_value(host)
    if value is None:
        return ""
    names = value.split(",")
    if host.interfaces is not None and not all(host.interfaces.get(name) for name in names):
        return None
    return str(len(names)) if len(names) > 1 else ""


MUST_AGREE: Dict[str, Setting] = {
    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER": Setting(
        _flag("GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER", ("1", "True")),
        "ranks misread each other's store records",
    ),
    "TORCH_GLOO_LAZY_INIT": Setting(
        _flag("TORCH_GLOO_LAZY_INIT", _TRUE, any_case=True),
        "some ranks connect at once to others that wait for the first use",
    ),
    "TORCH_DIST_INIT_BARRIER": Setting(
        _flag("TORCH_DIST_INIT_BARRIER", ("1",)), "some ranks wait in a barrier that the others never enter"
    ),
    "TORCH_DISTRIBUTED_DEBUG": Setting(
        _flag("TORCH_DISTRIBUTED_DEBUG", ("detail",), any_case=True),
        "with DETAIL a rank makes a second mesh, to which the others never come",
    ),
    "GLOO_SOCKET_IFNAME": Setting(
        _contexts, "each entry is a context of its own, and ranks with fewer never join the last ones"
    ),
}


def judge_agreement(case: Case) -> Opinion:
    """env-inconsistent, where a setting that all ranks must share differs and torch reads it."""
    return Opinion(causes=tuple(found for name in MUST_AGREE for found in _disagreement(case, name)))


def _disagreement(case: Case, name: str) -> List[Finding]:
    values = {place: environment.get(name) for place, environment in environments(case).items()}
    meant = {
        place: meaning for place in values if (meaning := _meaning(case.members[place], name)) is not None
    }
    return [
        finding(
            "env-inconsistent",
            subject,
            summary=f"{name} must be equal on all ranks: {_side_by_side(values, case)}",
            evidence=[
                f"{case.subject(place)} {name}={'(not set)' if value is None else value}"
                for place, value in sorted(values.items())
            ][: 4 * NAMED_AT_MOST],
            remediation=f"Give every node the same {name}; otherwise {MUST_AGREE[name].why}.",
            commands=_commands(name, [value for place, value in values.items() if meant.get(place) == usual]),
            at_s=started(case, own),
        )
        for subject, own, usual in odd_ones(case, meant)
    ]


def _meaning(member: Member, name: str) -> Optional[str]:
    """What torch makes of a member's value; None where that is not known or it takes none such."""
    host = member.report.host if member.report else None
    if host is None:
        return None
    value, torch = host.environment.get(name), torch_of(member)
    if value and not torch and READ[name].since:
        return None
    if value and without_effect({name: value}, torch, host.held_by_torch):
        return ""
    return MUST_AGREE[name].means(host)


def _commands(name: str, usual: Sequence[Optional[str]]) -> Tuple[str, ...]:
    """For an odd one out: what the others have. usual: their values; () = there is no majority."""
    if None in usual:
        return (f"unset {name}",)
    return (f"export {name}={usual[0]}",) if usual else ()


def differences(case: Case) -> Tuple[str, ...]:
    """Every variable that is not the same on all nodes, with the ranks of each value; no fault by itself."""
    by_place = environments(case)
    names = sorted({name for values in by_place.values() for name in values if not _OWN.search(name)})
    found = []
    for name in names:
        values = {place: environment.get(name) for place, environment in by_place.items()}
        if len(set(values.values())) > 1:
            found.append(f"{name}: {_side_by_side(values, case)}")
    return tuple(found)


def _side_by_side(values: Mapping[int, Optional[str]], case: Case) -> str:
    """`eth0 on ranks 0-2, not set on rank 3`: the most frequent value first."""
    ranks: Dict[Optional[str], List[int]] = {}
    for place, value in values.items():
        ranks.setdefault(value, []).append(case.members[place].rank)
    ordered = sorted(ranks.items(), key=lambda item: (-len(item[1]), min(item[1])))
    listed = [
        f"{_words(value)} on rank{'s' if len(own) > 1 else ''} {_ranges(own)}"
        for value, own in ordered[:_VALUES_AT_MOST]
    ]
    more = len(ordered) - len(listed)
    return ", ".join(listed) + (f", and {more} other values" if more else "")


def _words(value: Optional[str]) -> str:
    return "not set" if value is None else value or "(empty)"


def _ranges(ranks: Sequence[int]) -> str:
    """`0-2, 5`."""
    runs: List[List[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
