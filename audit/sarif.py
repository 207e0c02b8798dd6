"""An audit as SARIF 2.1.0, for code scanning (docs.oasis-open.org/sarif/sarif/v2.1.0)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from audit.answer import Audit
from audit.difference import Difference, Meaning
from diagnosis.causes import cause

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
DRIFT = "drift/"
EXPOSED = "exposed"
BASELINE = "baseline"
CONFIGURATION = "cdk.json"
"""Where a cluster is told: code scanning wants a file for each result."""

LEVELS = {
    Meaning.BREAKS_MESH: "error",
    Meaning.BREAKS_NEW_CONNECTIONS: "error",
    Meaning.OPENS_CLUSTER: "error",
    Meaning.UNDETERMINED: "warning",
    Meaning.WEAKENS: "warning",
    Meaning.COSMETIC: "note",
}

_MEANINGS = {
    Meaning.BREAKS_MESH: "a change made beside the stack parts members, and cuts connections that stand",
    Meaning.BREAKS_NEW_CONNECTIONS: "a change made beside the stack parts members for new connections",
    Meaning.OPENS_CLUSTER: "a change made beside the stack lets others in",
    Meaning.UNDETERMINED: "what a change made beside the stack does cannot be told",
    Meaning.WEAKENS: "a change made beside the stack weakens a guarantee",
    Meaning.COSMETIC: "a change made beside the stack that changes nothing",
}

Json = dict[str, Any]


def to_sarif(found: Audit, version: str) -> Json:
    """The SARIF document. What could not be looked at makes the run unsuccessful, and is told as such."""
    results = list(_results(found))
    rules = {item["ruleId"]: _rule(item["ruleId"]) for item in results}
    for place, rule_id in enumerate(rules):
        for item in results:
            if item["ruleId"] == rule_id:
                item["ruleIndex"] = place
    notes = [{"level": "error", "message": {"text": text}} for text in found.unanswered]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "fullmesh", "version": version, "rules": list(rules.values())}},
                "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
                "results": results,
                "columnKind": "utf16CodeUnits",
            }
        ],
    }


def _results(found: Audit) -> Iterator[Json]:
    for item in found.findings.causes:
        yield _result(item.id, "error", f"{item.subject}: {item.summary}", item.subject)
    for line in found.exposed_lines:
        yield _result(EXPOSED, "error", line, line)
    for difference in found.differences:
        yield _difference(difference)
    for difference, exception in found.accepted:
        suppressed = {"kind": "external", "justification": exception.reason}
        yield {**_difference(difference), "suppressions": [suppressed]}
    for text in found.baseline_problems:
        yield _result(BASELINE, "warning", text, text)


def _difference(item: Difference) -> Json:
    told = item.deviation
    text = f"{told.resource}, {told.attribute}: {item.detail}"
    result = _result(f"{DRIFT}{item.meaning.value}", LEVELS[item.meaning], text, "\n".join(told.key))
    place = {"name": told.resource, "kind": "resource"}
    if told.logical_id:
        place["fullyQualifiedName"] = told.logical_id
    result["locations"][0]["logicalLocations"] = [place]
    result["properties"] = {**item.summary(), "pairs": item.pair_count}
    return result


def _result(rule_id: str, level: str, text: str, key: str) -> Json:
    location: Json = {
        "physicalLocation": {"artifactLocation": {"uri": CONFIGURATION}, "region": {"startLine": 1}}
    }
    digest = hashlib.sha256(f"{rule_id}\n{key}".encode()).hexdigest()
    return {
        "ruleId": rule_id,
        "level": level,
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"fullmesh/v1": digest},
    }


def _rule(rule_id: str) -> Json:
    if rule_id.startswith(DRIFT):
        text = _MEANINGS[Meaning(rule_id[len(DRIFT) :])]
    elif rule_id == EXPOSED:
        text = "somebody outside the members can open a connection to them"
    elif rule_id == BASELINE:
        text = "a reviewed exception has expired, or matches nothing any more"
    else:
        text = cause(rule_id).title
    return {"id": rule_id, "shortDescription": {"text": text}}
