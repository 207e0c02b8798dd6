"""Rules about torchrun's own rendezvous: its id, its endpoint, and the store it chooses."""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Set

from diagnosis.logs.claims import EVERY_LOG, Claim, View, host_of, setting, suspects
from diagnosis.logs.facts import Fact
from diagnosis.logs.kinds import Kind


def elastic_claims(view: View) -> List[Claim]:
    """Everything about the agents of torchrun."""
    return [*_two_in_place_of_one(view), *_failed(view)]


def _two_in_place_of_one(view: View) -> List[Claim]:
    """Two rendezvous in place of one, or a second port that is closed."""
    claims: List[Claim] = []
    failed = view.book.all(
        Kind.RENDEZVOUS, Kind.STORE_TIMEOUT, Kind.STORE_RESET, Kind.STORE_WAIT, Kind.PEER_RESET
    )
    ids: Dict[str, Fact] = {}
    for fact in view.book.all(Kind.RUN_ID):
        ids.setdefault(setting(fact).strip("'\""), fact)
    random = [fact for fact in ids.values() if fact.get("random")]
    told = [fact for name, fact in ids.items() if name and not name.startswith(("$", "<", "{"))]
    if failed and len(told) > 1:
        names = ", ".join(list(ids)[:3])
        why = "each node made up its own, as no --rdzv-id was given" if len(random) > 1 else "they differ"
        claims.append(
            Claim(
                id="rdzv-id-mismatch",
                facts=tuple(told[:2]),
                summary=f"nodes wait in different rendezvous: {names} ({why})",
                fields={"run_id": "job1"},
            )
        )
    elif failed and random and view.several_hosts:
        summary = "no --rdzv-id was given, so each of the nodes makes up its own and waits alone"
        claims.append(
            Claim(id="rdzv-id-mismatch", facts=(random[0],), summary=summary, fields={"run_id": "job1"})
        )
    endpoints = {setting(fact).strip("'\"") for fact in view.book.settings("rdzv_endpoint")}
    hosts = {item.rpartition(":")[0] or item for item in endpoints}
    for done in view.book.all(Kind.RENDEZVOUS_DONE):
        late = [
            fact
            for fact in view.book.all(Kind.STORE_TIMEOUT)
            if fact.order > done.order and fact.get("port") == done.get("port") and host_of(fact) in hosts
        ]
        if late and f"{host_of(late[0])}:{done.get('port')}" not in endpoints:
            claims.append(
                Claim(
                    id="rdzv-port-blocked",
                    facts=(done, late[0]),
                    summary=f"the rendezvous at {', '.join(sorted(endpoints))} passed, and the store "
                    "that it chose, "
                    f"port {done.get('port')} of the same host, does not answer",
                    fields=view.fields(),
                )
            )
            break
    return claims


def _failed(view: View) -> List[Claim]:
    """torchrun's own rendezvous, where nothing else said why."""
    claims: List[Claim] = []
    facts = {fact.get("error"): fact for fact in reversed(view.book.all(Kind.RENDEZVOUS))}
    connection, timeout = facts.get("connection"), facts.get("timeout")
    if connection is not None:
        own = _own_endpoint(view, view.book.all(Kind.LOCAL_NODE))
        if own is not None:
            summary = f"the node {setting(own)} is the rendezvous host itself and could not connect to itself"
            claims.append(Claim(id="rdzv-host-unrecognised", facts=(own, connection), summary=summary))
        else:
            claims += suspects(
                ("rdzv-host-unrecognised", "master-unreachable", "peer-missing", "port-in-use"),
                (connection,),
                "the rendezvous store was not reached: its host did not serve it, or the way there is closed",
                ask="getent ahosts $(hostname); nc -zv -w 3 {master_address} {master_port}",
            )
    if timeout is not None:
        claims += suspects(
            ("peer-missing", "rdzv-id-mismatch", "rdzv-host-unrecognised", "peer-late"),
            (timeout,),
            "too few nodes came to the rendezvous",
            ask=EVERY_LOG,
        )
    return claims


def _own_endpoint(view: View, local: Iterable[Fact]) -> Optional[Fact]:
    hosts: Set[str] = {
        setting(fact).strip("'\"").rpartition(":")[0] for fact in view.book.settings("rdzv_endpoint")
    }
    return next((fact for fact in local if setting(fact) in hosts), None)
