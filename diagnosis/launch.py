"""How the job was started: its variables, and who holds the port."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from diagnosis import environment
from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import fill, finding
from diagnosis.claims import claims, environments, odd_ones, started, variable, where
from diagnosis.leftover import misleading
from diagnosis.master import as_meant, master_claims
from diagnosis.membership import Member
from diagnosis.opinion import Opinion, total
from diagnosis.report import Finding


def judge_launch(case: Case) -> Opinion:
    """Causes that lie in the environment or in a held port."""
    judges = (
        _missing,
        _inconsistent,
        _held_ports,
        _stale_stores,
        _transport,
    )
    return total(Opinion(causes=tuple(judge(case))) for judge in judges)


# --- variables -----------------------------------------------------------------------------


def _missing(case: Case) -> List[Finding]:
    """env-missing, where env:// is in use: some node has RANK, or this one a part of the four."""
    # Where another launcher's variables are left over, what is missing beside them says nothing.
    by_place = {
        place: values
        for place, values in environments(case).items()
        if misleading(case.members[place]) is None
    }
    env_in_use = any("RANK" in values for values in by_place.values())
    by_names: Dict[Tuple[str, ...], List[int]] = {}
    for place, values in by_place.items():
        absent = environment.missing_rendezvous(values)
        partly = "RANK" in values or "WORLD_SIZE" in values
        if absent and (env_in_use or partly):
            by_names.setdefault(absent, []).append(place)
    found = []
    for absent, places in by_names.items():
        for subject, own in where(case, places):
            names = ", ".join(absent)
            who = "every node" if subject == "cluster" else case.name(own[0])
            there = sorted(name for name in environment.RENDEZVOUS if name in by_place[own[0]])
            fields = {**case.fields(own[0]), "name": absent[0]}
            fields["value"] = _value_for(absent[0], case, own[0])
            found.append(
                finding(
                    "env-missing",
                    subject,
                    summary=f"{names} {'is' if len(absent) == 1 else 'are'} not set on {who}",
                    evidence=[f"set there: {', '.join(there) or 'none of the four'}"],
                    fields=fields,
                    at_s=started(case, own),
                )
            )
    return found


def _value_for(name: str, case: Case, place: int) -> str:
    master = case.roster.master()
    values = {
        "RANK": str(case.members[place].rank),
        "WORLD_SIZE": str(case.expectation.nodes),
        "MASTER_ADDR": master.address if master else "",
        "MASTER_PORT": str(case.expectation.master_port),
    }
    return values[name]


def _inconsistent(case: Case) -> List[Finding]:
    found = []
    told = master_claims(case)
    alike = len(set(told.values())) < 2  # one value for all, whatever it means here and there
    addresses = {} if alike else {place: as_meant(case, place, value) for place, value in told.items()}
    ports = claims(case, _master_port)
    for name, values in (("MASTER_ADDR", addresses), ("MASTER_PORT", ports)):
        for subject, own, usual in odd_ones(case, values):
            listed = [f"{case.subject(place)} {name}={value}" for place, value in sorted(values.items())]
            who = "nodes disagree" if subject == "cluster" else f"{case.name(own[0])} has {values[own[0]]}"
            found.append(
                finding(
                    "env-inconsistent",
                    subject,
                    summary=f"{name}: {who}" + (f", the others have {usual}" if usual else ""),
                    evidence=listed[: 4 * NAMED_AT_MOST],
                    fields=case.fields(own[0]),
                    at_s=started(case, own),
                )
            )
    return found


def _master_port(member: Member) -> Optional[str]:
    value = variable(member, "MASTER_PORT")
    if value is None and member.report is not None and member.report.master_port is not None:
        return str(member.report.master_port)
    return value


# --- ports and settings ----------------------------------------------------------------------


def _held_ports(case: Case) -> List[Finding]:
    found = []
    for member, listener in case.matrix.held_ports():
        place = case.members.index(member)
        holder = f" by {listener.holder}" if listener.holder else ""
        found.append(
            finding(
                "port-in-use",
                member.subject,
                summary=f"port {listener.port} on {case.name(place)} is held{holder}",
                evidence=[f"bind to {member.address}:{listener.port}: EADDRINUSE{holder}"],
                fields={**case.fields(place), "master_port": listener.port},
                at_s=started(case, [place]),
            )
        )
    return found


def _stale_stores(case: Case) -> List[Finding]:
    """The port is held by torch's own store: ranks of a new job would meet there, not at theirs."""
    found = []
    for member, listener in case.matrix.held_ports():
        if listener.store_keys is None:
            continue
        place = case.members.index(member)
        holder = f" ({listener.holder})" if listener.holder else ""
        found.append(
            finding(
                "stale-store",
                member.subject,
                summary=f"a TCPStore of another run{holder} answers on port {listener.port} of "
                f"{case.name(place)}, and a new job would join it",
                evidence=[
                    f"{member.address}:{listener.port}: a TCPStore with {listener.store_keys} keys{holder}"
                ],
                fields={**case.fields(place), "master_port": listener.port},
                commands=fill(
                    ("sudo ss -ltnp 'sport = :{master_port}'", "export MASTER_PORT={other_port}"),
                    {"master_port": listener.port},
                ),
                at_s=started(case, [place]),
            )
        )
    return found


def _transport(case: Case) -> List[Finding]:
    """A transport that no build of torch knows; one that this build lacks shows in the collective."""
    places: Dict[str, List[int]] = {}
    for place, values in environments(case).items():
        value = values.get("GLOO_DEVICE_TRANSPORT")
        if value is not None and not environment.transport_is_known(value):
            places.setdefault(value, []).append(place)
    return [
        finding(
            "transport-unsupported",
            subject,
            summary=f"GLOO_DEVICE_TRANSPORT={value} is no transport of any build",
            evidence=[
                f"{case.subject(place)} GLOO_DEVICE_TRANSPORT={value}" for place in own[:NAMED_AT_MOST]
            ],
            at_s=started(case, own),
        )
        for value, found in places.items()
        for subject, own in where(case, found)
    ]
