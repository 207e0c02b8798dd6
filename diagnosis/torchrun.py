"""torchrun's own rendezvous: its id, its endpoint, and the store that its agent serves."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence

from diagnosis.case import NAMED_AT_MOST, Case
from diagnosis.causes import finding
from diagnosis.claims import claims, environments, odd_ones, started, variable
from diagnosis.master import store_contact
from diagnosis.membership import Member
from diagnosis.opinion import Opinion, total
from diagnosis.published import parse_address
from diagnosis.report import ConnectOutcome, Contact, Finding, HostFacts, Meeting

_ID_NAMES = ("TORCHELASTIC_RUN_ID", "PET_RDZV_ID")


def judge_torchrun(case: Case) -> Opinion:
    """rdzv-id-mismatch, rdzv-host-unrecognised, rdzv-port-blocked, store-host-exited."""
    judges = (_ids, _unrecognised, _blocked, _exited)
    return total(Opinion(causes=tuple(judge(case))) for judge in judges)


def _ids(case: Case) -> List[Finding]:
    """Both rendezvous back ends keep the keys of each id apart."""

    def told(member: Member) -> Optional[str]:
        return next((value for name in _ID_NAMES if (value := variable(member, name))), None)

    values = claims(case, told)
    found = []
    for subject, own, usual in odd_ones(case, values):
        who = (
            "nodes have different ids"
            if subject == "cluster"
            else f"{case.name(own[0])} has {values[own[0]]}"
        )
        found.append(
            finding(
                "rdzv-id-mismatch",
                subject,
                summary=f"rendezvous id: {who}" + (f", the others have {usual}" if usual else ""),
                evidence=[
                    f"{case.subject(place)} rendezvous id {value}" for place, value in sorted(values.items())
                ][: 4 * NAMED_AT_MOST],
                fields={**case.fields(own[0]), "run_id": usual or next(iter(values.values()))},
                at_s=started(case, own),
            )
        )
    return found


# --- the endpoint --------------------------------------------------------------------------------


def _unrecognised(case: Case) -> List[Finding]:
    """The host of the endpoint compares it with its own name and that name's addresses, and finds neither.

    torch/distributed/elastic/rendezvous/utils.py, `_matches_machine_hostname`: only an endpoint that is
    an address can be judged by what a row holds, for a name may also be the canonical one.
    """
    found = []
    for place, member in enumerate(case.members):
        contact = _endpoint(case, place)
        host = member.report.host if member.report else None
        if contact is None or host is None or host.hostname_addresses is None:
            continue
        own = contact.host in {a for addresses in (host.interfaces or {}).values() for a in addresses}
        silent = contact.outcome is not ConnectOutcome.CONNECTED
        told = "is_host" in (variable(member, "PET_RDZV_CONF") or "")
        known = contact.host in (*host.hostname_addresses, host.hostname)
        if own and silent and not told and not known and parse_address(contact.host) is not None:
            found.append(_nobody_serves(case, place, contact, host))
    return found


def _nobody_serves(case: Case, place: int, contact: Contact, host: HostFacts) -> Finding:
    resolves = (
        f"its own name {host.hostname} resolves to {', '.join(host.hostname_addresses or ()) or 'nothing'}"
    )
    return finding(
        "rdzv-host-unrecognised",
        case.subject(place),
        summary=f"{case.name(place)} is the rendezvous host {contact.host} and does not know it: {resolves}",
        evidence=[
            f"{case.subject(place)} the rendezvous endpoint is {contact.host}:{contact.port}",
            f"{case.subject(place)} {resolves}",
            _tried(case, place, contact),
        ],
        fields=case.fields(place),
        at_s=started(case, [place]),
    )


def _blocked(case: Case) -> List[Finding]:
    """Members that reach the rendezvous and not the store beside it, which a filter swallows."""
    blocked: Dict[int, Contact] = {}
    for place in range(len(case.members)):
        rendezvous, store = _endpoint(case, place), store_contact(case, place)
        if rendezvous is None or store is None or rendezvous.address != store.address:
            continue
        if rendezvous.outcome is ConnectOutcome.CONNECTED and store.outcome is ConnectOutcome.TIMED_OUT:
            blocked[place] = store
    everybody = len(blocked) >= len(case.members) - 1 and len(blocked) > 1  # the store's own host reaches it
    meant = [("cluster", sorted(blocked))] if everybody else [(case.subject(p), [p]) for p in sorted(blocked)]
    return [_port_blocked(case, subject, places, blocked) for subject, places in meant if places]


def _port_blocked(case: Case, subject: str, places: Sequence[int], blocked: Dict[int, Contact]) -> Finding:
    store, endpoint = blocked[places[0]], _endpoint(case, places[0])
    passed = f"port {endpoint.port} of {store.host}" if endpoint else store.host
    return finding(
        "rdzv-port-blocked",
        subject,
        summary=f"the rendezvous on {passed} answers, and the store that the launcher chose, port "
        f"{store.port} of the same host, does not (silent drop)",
        evidence=[_tried(case, place, blocked[place]) for place in places[:NAMED_AT_MOST]],
        fields={
            **case.fields(places[0]),
            "group_id": case.group_id(range(len(case.members))),
            "master_port": store.port,
        },
        at_s=started(case, places),
    )


# --- the store -----------------------------------------------------------------------------------


def _exited(case: Case) -> List[Finding]:
    """The agent's store, which is there before any worker, refuses on its own host, too."""
    found = []
    for place, values in environments(case).items():
        contact = store_contact(case, place)
        if values.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or contact is None:
            continue
        at_home = contact.address == case.members[place].address
        if not at_home or contact.outcome is not ConnectOutcome.REFUSED:
            continue
        refused = [
            other
            for other in range(len(case.members))
            if (seen := store_contact(case, other)) and seen.outcome is ConnectOutcome.REFUSED
        ]
        found.append(
            finding(
                "store-host-exited",
                case.subject(place),
                summary=f"nothing listens on port {contact.port} of {case.name(place)} any more: the process "
                "that held the store ended",
                evidence=[
                    *(_tried(case, other, store_contact(case, other)) for other in refused[:NAMED_AT_MOST]),
                    "TORCHELASTIC_USE_AGENT_STORE=True: the agent serves it before it starts a worker",
                ],
                fields=case.fields(place),
                at_s=started(case, [place]),
            )
        )
    return found


def _endpoint(case: Case, place: int) -> Optional[Contact]:
    report = case.members[place].report
    found = (report.contacts or ()) if report else ()
    return next((contact for contact in found if contact.meeting is Meeting.RENDEZVOUS), None)


def _tried(case: Case, place: int, contact: Optional[Contact]) -> str:
    if contact is None or contact.outcome is None:
        return f"{case.subject(place)}: not tried"
    return f"{case.subject(place)} -> {contact.address}:{contact.port}: {contact.outcome.value}"
