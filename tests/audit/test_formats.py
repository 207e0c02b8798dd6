"""SARIF and JUnit: the same findings, as other programs read them."""

from __future__ import annotations

import datetime
from typing import Any
from xml.etree import ElementTree

import pytest

from audit.answer import Audit, audit_stack
from audit.baseline import ReviewedException
from audit.difference import Meaning
from audit.documents import Documents
from audit.drift import our_stack
from audit.junit import to_junit
from audit.live import read_stack
from audit.sarif import to_sarif
from tests.audit.deployed import Account
from tests.audit.test_drift import changed, members_group, self_rule, without

EXCEPTION = ReviewedException(
    resource="MemberGroup", attribute="tags", reason="cost centre", expires=datetime.date(2027, 1, 31)
)
TODAY = datetime.date(2026, 12, 1)


@pytest.fixture(scope="module")
def documents(account: Account) -> Documents:
    return read_stack(account.session, "fullmesh")


def drifted(documents: Documents, **options: Any) -> Audit:
    """A narrowed self rule, a rule for the world and a tag."""

    def change(document: dict[str, Any]) -> None:
        group = members_group(document)
        self_rule(group)["ToPort"] = 40000
        ranges = [{"CidrIp": "0.0.0.0/0"}]
        group["IpPermissions"].append({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": ranges})
        group["Tags"].append({"Key": "team", "Value": "a"})

    found = changed(documents, "security-groups", change)
    return audit_stack(found, our_stack(found), **options)


def clean(documents: Documents) -> Audit:
    return audit_stack(documents, our_stack(documents))


def valid(document: dict[str, Any]) -> None:
    """What SARIF 2.1.0 demands of the parts that are used (sections 3.13 to 3.27)."""
    assert document["version"] == "2.1.0"
    assert document["$schema"].endswith("sarif-schema-2.1.0.json")
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"]
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(set(ids)) == len(ids)
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert isinstance(run["invocations"][0]["executionSuccessful"], bool)
    for item in run["invocations"][0]["toolExecutionNotifications"]:
        assert (item["level"] in ("none", "note", "warning", "error"), bool(item["message"]["text"])) == (
            True,
            True,
        )
    for result in run["results"]:
        assert result["level"] in ("none", "note", "warning", "error")
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "cdk.json"
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
        allowed = {
            "ruleId",
            "ruleIndex",
            "level",
            "message",
            "locations",
            "partialFingerprints",
            "suppressions",
            "properties",
        }
        assert set(result) <= allowed


def test_sarif_holds_every_finding_with_its_level(documents: Documents) -> None:
    """Causes, openings and differences; the level follows the meaning."""
    document = to_sarif(drifted(documents), "1.0")
    valid(document)
    (run,) = document["runs"]
    assert sorted((item["ruleId"], item["level"]) for item in run["results"]) == [
        ("drift/breaks-new-connections-only", "error"),
        ("drift/cosmetic", "note"),
        ("drift/opens-cluster", "error"),
        ("exposed", "error"),
        ("sg-ports-too-narrow", "error"),
    ]
    assert run["invocations"][0]["executionSuccessful"] is True


def test_sarif_keeps_what_an_exception_lets_be_as_suppressed(documents: Documents) -> None:
    """The reason is its justification; a finding has the same fingerprint in every run."""
    found = drifted(documents).with_baseline([EXCEPTION], TODAY)
    document = to_sarif(found, "1.0")
    valid(document)
    suppressed = [item for item in document["runs"][0]["results"] if "suppressions" in item]
    assert [(item["ruleId"], item["suppressions"]) for item in suppressed] == [
        ("drift/cosmetic", [{"kind": "external", "justification": "cost centre"}])
    ]
    again = to_sarif(drifted(documents).with_baseline([EXCEPTION], TODAY), "1.0")
    assert again == document


def test_sarif_says_that_the_run_could_not_look(documents: Documents) -> None:
    """An unread document makes it unsuccessful: no result is not "nothing found"."""
    unread = without(documents, "vpc-endpoints")
    document = to_sarif(audit_stack(unread, our_stack(unread)), "1.0")
    valid(document)
    (run,) = document["runs"]
    assert (run["results"], run["invocations"][0]["executionSuccessful"]) == ([], False)


def cases(text: str) -> dict[str, str]:
    """name -> failure, error, skipped or passed."""
    root = ElementTree.fromstring(text)  # noqa: S314 - our own
    (suite,) = root
    for element in (root, suite):
        counted = {
            kind: sum(case.find(kind) is not None for case in suite)
            for kind in ("failure", "error", "skipped")
        }
        assert int(element.attrib["tests"]) == len(suite)
        assert (int(element.attrib["failures"]), int(element.attrib["errors"])) == (
            counted["failure"],
            counted["error"],
        )
        assert int(element.attrib["skipped"]) == counted["skipped"]
    return {
        case.attrib["name"]: next((child.tag for child in case if child.tag != "system-out"), "passed")
        for case in suite
    }


def test_junit_has_a_case_for_each_question_and_difference(documents: Documents) -> None:
    """What fails is a failure, what an exception lets be is skipped."""
    found = cases(to_junit(drifted(documents).with_baseline([EXCEPTION], TODAY)))
    group = documents.snapshot().running_with_tag("fullmesh:cluster", "fullmesh")
    assert len(group) == 4
    assert sorted(found.values()) == ["failure", "failure", "failure", "failure", "skipped"]
    assert found["every pair of members can connect"] == found["nobody else gets in"] == "failure"


def test_junit_passes_what_is_below_the_level(documents: Documents) -> None:
    """`--fail-on` decides there, too."""
    found = cases(to_junit(drifted(documents, fail_on=Meaning.BREAKS_NEW_CONNECTIONS)))
    assert sorted(found.values()) == ["failure", "failure", "passed", "passed", "passed"]


def test_junit_of_a_clean_stack_passes(documents: Documents) -> None:
    """Three questions, three answers."""
    assert set(cases(to_junit(clean(documents))).values()) == {"passed"}


def test_junit_has_an_error_where_one_could_not_look(documents: Documents) -> None:
    """Not a failure, and not a pass."""
    unread = without(documents, "vpc-endpoints")
    found = cases(to_junit(audit_stack(unread, our_stack(unread))))
    assert found["what stands is what the stack was told"] == "error"


def test_an_opening_that_an_exception_lets_be_does_not_fail(documents: Documents) -> None:
    """The rule is reviewed, so who comes by it is; whoever comes by another is not."""
    found = drifted(documents)
    (rule,) = (item for item in found.differences if item.meaning is Meaning.OPENS_CLUSTER)
    exception = ReviewedException(
        resource=rule.deviation.resource,
        attribute=rule.deviation.attribute,
        actual="tcp 22 from 0.0.0.0/0",
        reason="bastion",
        expires=datetime.date(2027, 1, 31),
    )
    accepted = found.with_baseline([exception], TODAY)
    assert (found.opened, accepted.opened, accepted.exposed) == (True, False, ())
    assert [item.meaning for item in accepted.differences] == [
        Meaning.BREAKS_NEW_CONNECTIONS,
        Meaning.COSMETIC,
    ]
