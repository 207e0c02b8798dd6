"""Templates of two sizes of cluster, compared value by value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.record import BenchError
from bench.synth import CHECKOUT, count_resources, differing_leaves, environment, size, synthesise, templates


def test_paths_that_differ_are_told_one_by_one() -> None:
    """Changed, added and removed values are found, inside of lists too; equal ones are not."""
    one = {"a": {"b": 1, "c": [1, {"d": 2}]}, "gone": 1, "same": [1]}
    other = {"a": {"b": 2, "c": [1, {"d": 3}]}, "new": 1, "same": [1]}
    assert differing_leaves(one, other) == ["/a/b", "/a/c/1/d", "/gone", "/new"]


def test_lists_of_another_length_differ_as_a_whole() -> None:
    """A list that grew with the cluster is one difference: a template must not have one."""
    assert differing_leaves({"nodes": [1]}, {"nodes": [1, 2]}) == ["/nodes"]


def test_templates_are_read_by_name_and_counted(tmp_path: Path) -> None:
    """Only templates count, not the other files of a cloud assembly."""
    (tmp_path / "one.template.json").write_text('{"Resources": {"A": {}, "B": {}}}')
    (tmp_path / "two.template.json").write_text('{"Resources": {"C": {}}}')
    (tmp_path / "manifest.json").write_text("{}")
    found = templates(tmp_path)
    assert sorted(found) == ["one.template.json", "two.template.json"]
    assert count_resources(found) == 3
    assert size(found) == sum(len(json.dumps(item, indent=1)) for item in found.values())


def test_app_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    """No template is never a template of size nothing."""
    with pytest.raises(BenchError, match="holds no template: the app wrote nothing"):
        templates(tmp_path)


def test_app_that_fails_is_quoted(tmp_path: Path) -> None:
    """A synthesis that failed is no measurement; its words are in the error."""
    app = tmp_path / "app.py"
    app.write_text("import sys\nsys.exit('cluster.nodes: 5000 is too many')\n")
    with pytest.raises(BenchError, match=r"app\.py with 5000 nodes ended with 1: cluster\.nodes: 5000"):
        synthesise(app, tmp_path / "out", 5000)


def test_app_is_told_what_the_cdk_tells_it(tmp_path: Path) -> None:
    """The context is cdk.json's with the number of nodes over it; the output folder is the given one."""
    told = environment(tmp_path, 400)
    context = json.loads(told["CDK_CONTEXT_JSON"])
    assert context["cluster.nodes"] == "400"
    assert context["cluster"] == json.loads((CHECKOUT / "cdk.json").read_text())["context"]["cluster"]
    assert told["CDK_OUTDIR"] == str(tmp_path)
