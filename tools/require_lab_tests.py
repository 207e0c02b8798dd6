"""Fails unless the test report shows lab tests that ran: a run without them proves nothing.

Reads pytest's JUnit XML (the file named as the only argument) and prints what ran, what
was skipped and why. Exit status 1 when no lab test ran or any lab test was skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def main(argv: list[str]) -> int:
    report = Path(argv[0])
    if not report.exists():
        sys.stderr.write(f"{report}: no test report; run: make test\n")
        return 1
    cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 - see above
    lab = [case for case in cases if case.find("properties/property[@name='lab']") is not None]
    ran = [case for case in lab if case.find("skipped") is None]
    for case in cases:
        skipped = case.find("skipped")
        if skipped is not None:
            sys.stdout.write(
                f"skipped: {case.get('classname')}.{case.get('name')}: {skipped.get('message')}\n"
            )
    sys.stdout.write(
        f"lab tests: {len(ran)} ran, {len(lab) - len(ran)} skipped, of {len(cases)} tests in all\n"
    )
    if not ran or len(ran) != len(lab):
        sys.stderr.write("the lab tests did not all run; run: .venv/bin/fullmesh doctor\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
