"""An audit as JUnit XML, for continuous integration: one case a question, one a difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

from audit.answer import Audit
from audit.difference import Difference
from diagnosis.prose import plain

SUITE = "fullmesh audit"


def to_junit(found: Audit) -> str:
    """The XML. A difference that does not fail the audit is a case that passed, and tells what it is."""
    suite = ElementTree.Element("testsuite", name=SUITE)
    for case in _cases(found):
        suite.append(case)
    for kind in ("failure", "error", "skipped"):
        total = sum(case.find(kind) is not None for case in suite)
        suite.set("failures" if kind == "failure" else "errors" if kind == "error" else "skipped", str(total))
    suite.set("tests", str(len(suite)))
    root = ElementTree.Element("testsuites", dict(suite.attrib))
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(found: Audit) -> Iterator[ElementTree.Element]:
    findings = found.findings
    yield _case(
        "mesh",
        "every pair of members can connect",
        failure=[f"{item.id} ({item.subject}): {item.summary}" for item in findings.causes],
        error=findings.unanswered if findings.mesh_possible is None else (),
    )
    yield _case(
        "exposure",
        "nobody else gets in",
        failure=found.exposed_lines if found.opened else (),
        error=() if findings.exposure_known else findings.unanswered,
    )
    for item in found.differences:
        text = f"{item.meaning.value}: {item.detail}"
        failing = found.fails(item)
        case = _case("drift", _name(item), failure=[text] if failing else ())
        if not failing:
            ElementTree.SubElement(case, "system-out").text = plain(text)
        yield case
    for difference, exception in found.accepted:
        case = _case("drift", _name(difference))
        ElementTree.SubElement(
            case, "skipped", message=plain(f"{exception.reason} (until {exception.expires})")
        )
        yield case
    for text in found.baseline_problems:
        yield _case("baseline", text, failure=[text])
    unread = found.drift.unread if found.drift else ()
    if found.drift is not None and (unread or not found.differences):
        yield _case("drift", "what stands is what the stack was told", error=unread)


def _name(item: Difference) -> str:
    told = item.deviation
    return f"{told.resource}, {told.attribute}: {told.expected} became {told.actual}"


def _case(
    group: str, name: str, *, failure: Iterable[object] = (), error: Iterable[object] = ()
) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"fullmesh.{group}", name=plain(name), time="0")
    for kind, found in (("failure", failure), ("error", error)):
        texts = [plain(str(text)) for text in found]
        if texts:
            element = ElementTree.SubElement(case, kind, message=texts[0])
            element.text = "\n".join(texts)
            break
    return case
