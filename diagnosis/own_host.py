"""What a host cannot do by itself: reach its own listeners, or open another connection."""

from __future__ import annotations

import errno
import os
from typing import Dict, Sequence, Set, Tuple

from diagnosis.case import Case
from diagnosis.causes import finding
from diagnosis.drops import mending
from diagnosis.firewall.ruleset import Does, unique
from diagnosis.matrix import Flow, listeners
from diagnosis.opinion import Opinion, total, undetermined
from diagnosis.report import ConnectOutcome, Listener


def judge_own_host(case: Case) -> Opinion:
    """Causes that lie in one host and show before any peer is asked."""
    return total((_own_listeners(case), _local(case)))


_STOPPED = {
    errno.ETIMEDOUT: ("os-firewall-drop", Does.DROP),
    errno.ECONNREFUSED: ("os-firewall-reject", Does.REJECT),
    errno.EHOSTUNREACH: ("os-firewall-reject", Does.REJECT),
}


def _own_listeners(case: Case) -> Opinion:
    """Listeners that could not be reached from their own host, and from no peer that tells more.

    Such a connection goes over loopback: no security group sees it, only the host's firewall.
    """
    told = {
        (flow.destination, flow.port)
        for flow in case.matrix.with_outcome(
            ConnectOutcome.TIMED_OUT, ConnectOutcome.REFUSED, ConnectOutcome.UNREACHABLE
        )
    }
    opinions = []
    for place, member in enumerate(case.members):
        failed = [
            item
            for item in listeners(member)
            if not item.opened and item.errno in _STOPPED and (place, item.port) not in told
        ]
        if failed:
            opinions.append(_stops_itself(case, place, failed))
    return total(opinions)


def _stops_itself(case: Case, place: int, failed: Sequence[Listener]) -> Opinion:
    cause_id, verdict = _STOPPED[failed[0].errno or 0]
    decisions = [case.firewalls.to_itself(place, item.port) for item in failed]
    rules = unique(tuple(stop for found in decisions if found for stop in found.stops))
    ports = ", ".join(str(item.port) for item in failed)
    report = case.members[place].report
    started_at = report.started_at if report else None
    words = f"{case.name(place)} does not reach its own listeners on {ports}"
    evidence = [f"{case.subject(place)} ruleset: {stop}" for stop in rules]
    evidence.append(
        f"connect to {case.members[place].address} from itself: {os.strerror(failed[0].errno or 0)}"
    )
    if all(found is not None and verdict not in found.possible for found in decisions):
        return undetermined(
            [(cause_id, case.subject(place))],
            why=f"{words}, and its ruleset lets them pass",
            evidence=evidence,
            next_command=f"sudo nft list ruleset  # on {case.name(place)}",
            fields=case.fields(place),
            at_s=started_at,
        )
    found = finding(
        cause_id,
        case.subject(place),
        summary=f"{words}: its firewall stops new connections" + (f": {rules[0]}" if rules else ""),
        evidence=evidence,
        **mending(case, place, rules),
        at_s=started_at,
    )
    return Opinion(causes=(found,))


_LOCAL_CAUSES = {
    errno.EMFILE: ("fd-limit", "ran out of file descriptors"),
    errno.ENFILE: ("fd-limit", "ran out of file descriptors"),
    errno.EADDRNOTAVAIL: ("port-exhaustion", "had no ephemeral port left"),
}


def _local(case: Case) -> Opinion:
    by_place: Dict[Tuple[int, int], Set[Flow]] = {}
    for flow in case.matrix.with_outcome(ConnectOutcome.LOCAL_ERROR):
        number = case.matrix.probes[flow].errno
        if number in _LOCAL_CAUSES:
            by_place.setdefault((flow.source, number), set()).add(flow)
    causes = []
    for (place, number), flows in sorted(by_place.items()):
        cause_id, words = _LOCAL_CAUSES[number]
        causes.append(
            finding(
                cause_id,
                case.subject(place),
                summary=f"{case.name(place)} {words} while it probed ({len(flows)} probes)",
                evidence=case.evidence(flows),
                fields=case.fields(place),
                at_s=case.at_s(flows),
            )
        )
    return Opinion(causes=tuple(causes))
