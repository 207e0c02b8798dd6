"""What others' checks say of the templates: cfn-lint, and cdk-nag's AwsSolutions pack."""

from __future__ import annotations

import json
from pathlib import Path

import aws_cdk as cdk
import cdk_nag
import pytest
from cfnlint.api import lint_file  # type: ignore[import-untyped]

import app
from stacks.accepted import as_cdk_nag_writes
from tests.stacks.conftest import SHAPES
from tests.stacks.synthesis import Synthesis, new_app


def test_cfn_lint_finds_nothing(shape: Synthesis) -> None:
    """Errors, warnings and informations; what is ignored is in the template with its reason in code."""
    found = [
        f"{match.rule.id} {match.message}"
        for name in ("fullmesh", "fullmesh-evidence")
        for match in lint_file(shape.folder / f"{name}.template.json")
    ]
    assert found == []


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_aws_solutions_finds_nothing_that_is_not_accepted(shape: str, tmp_path: Path) -> None:
    """Every finding is mended, or accepted where it is made."""
    application = new_app(tmp_path, **SHAPES[shape])
    app.build(application)
    cdk.Validations.of(application).add_plugins(cdk_nag.AwsSolutionsChecks(application))
    application.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text(encoding="utf-8"))
    names = {plugin["pluginName"]: plugin for plugin in report["pluginReports"]}
    assert "AwsSolutions" in names
    assert names["AwsSolutions"]["violations"] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("arn:x/${aws:userid}/*", "arn:x/<aws:userid>/*"),
        ({"Ref": "AWS::Partition"}, "<AWS::Partition>"),
        ({"Fn::GetAtt": ["Vpc", "DefaultSecurityGroup"]}, "<Vpc.DefaultSecurityGroup>"),
        ({"Fn::ImportValue": "evidence-Bucket"}, "evidence-Bucket"),
        ({"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":s3:::*"]]}, "arn:<AWS::Partition>:s3:::*"),
    ],
)
def test_references_are_written_as_cdk_nag_writes_them(value: object, text: str) -> None:
    """An acceptance counts only under exactly the id of the finding."""
    assert as_cdk_nag_writes(value) == text
