"""env-no-effect: variables that the torch at hand does not read, with what works in their place."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import torch_of, where
from diagnosis.opinion import Opinion
from diagnosis.report import Finding, HostFacts
from diagnosis.variables import Instead, NoEffect, without_effect

# Interfaces named over and over make as many contexts; more than this helps no cluster.
_MOST_CHANNELS = 8


def judge_in_vain(case: Case) -> Opinion:
    """One finding a reason and subject; it never decides a verdict."""
    by_reason: Dict[Tuple[str, ...], Dict[int, List[NoEffect]]] = {}
    for place, member in enumerate(case.members):
        host = member.report.host if member.report else None
        if host is None:
            continue
        for told in without_effect(host.environment, torch_of(member), host.held_by_torch):
            # Several that are in vain for one reason are one finding.
            key = (told.why,) if told.instead is None else (told.why, told.name)
            by_reason.setdefault(key, {}).setdefault(place, []).append(told)
    return Opinion(
        causes=tuple(
            _finding(case, subject, {place: at[place] for place in own})
            for at in by_reason.values()
            for subject, own in where(case, sorted(at))
        )
    )


def _finding(case: Case, subject: str, at: Dict[int, List[NoEffect]]) -> Finding:
    """at: the places of one subject, with what is set there in vain for one reason."""
    place, first = next(iter(at.items()))
    names = list(dict.fromkeys(told.name for found in at.values() for told in found))
    more = len(names) - NAMED_AT_MOST
    listed = ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
    host = _host(case, place)
    works, commands = _instead(first[0].instead, host, host.environment.get(names[0], ""))
    return finding(
        "env-no-effect",
        subject,
        summary=f"{listed} {'has' if len(names) == 1 else 'have'} no effect: {first[0].why}"
        + (f"; what works: {first[0].instead.works}" if first[0].instead else ""),
        evidence=[
            _evidence(case, place, told) for place, found in at.items() for told in found[:NAMED_AT_MOST]
        ][: 4 * NAMED_AT_MOST],
        fields={"name": names[0]},
        remediation=f"Remove {listed}" + (f"; what works: {works}." if works else "."),
        commands=(f"unset {' '.join(names)}", *commands),
    )


def _host(case: Case, place: int) -> HostFacts:
    report = case.members[place].report
    return (report.host if report else None) or HostFacts()


def _evidence(case: Case, place: int, told: NoEffect) -> str:
    host = _host(case, place)
    release = torch_of(case.members[place])
    looked = "" if host.held_by_torch is None else ", its libraries were looked through"
    torch = f"torch {release}{looked}" if release else "no torch for this Python"
    return f"{case.subject(place)} {told.name}={host.environment.get(told.name, '')} ({torch})"


def _instead(instead: Optional[Instead], host: HostFacts, value: str) -> Tuple[str, Tuple[str, ...]]:
    """(what works, with its Python lines; the commands), for this node."""
    if instead is None:
        return "", ()
    interface = host.interface or "INTERFACE"
    times = min(int(value), _MOST_CHANNELS) if value.isdigit() and int(value) > 1 else 2
    fields = {
        "value": value if value.isdigit() else "SECONDS",
        "interface": interface,
        "interfaces": ",".join([interface] * times),
    }
    lines = instead.python.format_map(fields) if instead.python else ""
    works = f"{instead.works}: {lines}" if lines else instead.works
    return works, (instead.command.format_map(fields),) if instead.command else ()
