"""Published addresses side by side: one that several hosts publish, and families that do not fit."""

from __future__ import annotations

from collections import Counter
from typing import Dict, List, Sequence

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import started
from diagnosis.membership import is_loopback
from diagnosis.opinion import NOTHING, Opinion
from diagnosis.published import Published, published
from diagnosis.report import Finding


def judge_advertised(case: Case) -> Opinion:
    """duplicate-address and ipv4-ipv6-mismatch; what one host alone publishes is for diagnosis.names."""
    if case.roster.one_host:  # one address for all is right there
        return NOTHING
    known: Dict[int, Published] = {}
    for place, member in enumerate(case.members):
        host = member.report.host if member.report else None
        found = published(host) if host is not None else None
        if found is not None and not is_loopback(found.address):
            known[place] = found
    return Opinion(causes=(*_duplicates(case, known), *_families(case, known)))


def _duplicates(case: Case, known: Dict[int, Published]) -> List[Finding]:
    """One finding a node that publishes what another host publishes, too, and that is not its own."""
    by_address: Dict[str, List[int]] = {}
    for place, own in known.items():
        by_address.setdefault(own.address, []).append(place)
    found = []
    for address, places in by_address.items():
        if len({case.members[place].address for place in places}) < 2:  # ranks of one host share one
            continue
        for place in places:
            if case.members[place].address != address:
                found.append(_duplicate(case, place, address, places, known))
    return found


def _duplicate(
    case: Case, place: int, address: str, places: Sequence[int], known: Dict[int, Published]
) -> Finding:
    others = [case.name(other) for other in places if other != place]
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return finding(
        "duplicate-address",
        case.subject(place),
        summary=f"{case.name(place)} publishes {address}, and so does {others[0]}{more}",
        evidence=[
            f"{case.subject(other)} publishes {address} ({known[other].how})"
            for other in places[:NAMED_AT_MOST]
        ],
        fields=case.fields(place),
        at_s=started(case, [place]),
    )


def _families(case: Case, known: Dict[int, Published]) -> List[Finding]:
    """One finding a node of the rarer family; the cluster where both are equally common."""
    versions = {place: own.version for place, own in known.items() if own.version is not None}
    common = Counter(versions.values()).most_common()
    if len(common) < 2:
        return []
    evidence = [
        f"{case.subject(place)} publishes {known[place].address} (IPv{versions[place]}; {known[place].how})"
        for place in sorted(versions)[: 2 * NAMED_AT_MOST]
    ]
    if common[0][1] == common[1][1]:
        return [
            finding(
                "ipv4-ipv6-mismatch",
                "cluster",
                summary="half of the members publish IPv4 addresses, the other half IPv6",
                evidence=evidence,
                fields=case.fields(min(versions)),
                at_s=started(case, sorted(versions)),
            )
        ]
    usual = common[0][0]
    return [
        finding(
            "ipv4-ipv6-mismatch",
            case.subject(place),
            summary=f"{case.name(place)} publishes the IPv{version} address {known[place].address}, "
            f"the others IPv{usual}",
            evidence=evidence,
            fields=case.fields(place),
            at_s=started(case, [place]),
        )
        for place, version in sorted(versions.items())
        if version != usual
    ]
