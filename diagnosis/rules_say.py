"""What the account's rules say about flows that died: the static findings that match them."""

from __future__ import annotations

import dataclasses
import re
from typing import Mapping, Set, Tuple

from diagnosis.case import Case
from diagnosis.drops import ask_rules, count
from diagnosis.matrix import Flow
from diagnosis.opinion import Opinion
from diagnosis.report import Finding


def rules_say(case: Case, forbidden: Set[Flow]) -> Tuple[Opinion, Set[Flow]]:
    """(opinion, flows it explains): only rules whose flows really died are named.

    A static finding that no probe confirms is left to the audit.
    """
    causes = []
    explained: Set[Flow] = set()
    static = case.static
    if static is None:
        raise ValueError("flows cannot be forbidden by rules that were not read")
    places = {member.member_id: place for place, member in enumerate(case.members)}
    subjects = {rank: case.subject(places[member_id]) for member_id, rank in static.ranks.items()}
    for told in static.causes:
        found = dataclasses.replace(told, subject=_in_our_ranks(told.subject, subjects))
        flows = {flow for flow in forbidden if covers(case, found.subject, flow)}
        if flows:
            causes.append(_confirmed(case, found, flows))
            explained |= flows
    if explained:
        return Opinion(causes=tuple(causes)), explained
    evidence = ["the account's rules forbid these flows", *case.evidence(forbidden)]
    options = [("sg-no-self-ingress", "cluster"), ("sg-no-self-egress", "cluster"), ("nacl-deny", "cluster")]
    return ask_rules(case, options, forbidden, evidence), set(forbidden)


def _in_our_ranks(subject: str, subjects: Mapping[int, str]) -> str:
    """A subject of the rules' judge, whose ranks are by address, in the ranks of this run."""

    def renamed(match: re.Match[str]) -> str:
        return subjects[int(match.group())].partition(":")[2]

    return re.sub(r"\d+", renamed, subject)


def covers(case: Case, subject: str, flow: Flow) -> bool:
    """Whether a subject (`cluster`, `node:RANK`, `pair:SRC>DST`) takes in a flow."""
    ends = (case.subject(flow.source), case.subject(flow.destination))
    return subject == "cluster" or subject in ends or subject == case.pair_subject(flow.pair)


def _confirmed(case: Case, found: Finding, flows: Set[Flow]) -> Finding:
    """The static finding with what the probes saw; the famous one in the famous words."""
    summary = found.summary  # with its extent by the rules, which the probes have confirmed
    if "silent drop" not in summary:
        summary = f"{summary} ({count(case, flows)}, silent drop)"
    if found.id == "sg-only-master-port":
        group = case.group_id(range(len(case.members)))
        summary = (
            f"members reach each other on {case.expectation.master_port} but not on ports {case.ephemeral} "
            f"({count(case, flows)}, silent drop); "
            f'security group{" " + group if group else ""} lacks "all TCP from itself"'
        )
    return dataclasses.replace(
        found,
        summary=summary,
        evidence=(*found.evidence, *case.evidence(flows)),
        at_s=case.at_s(flows),
    )
