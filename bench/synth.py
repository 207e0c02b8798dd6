"""`python app.py` beside an empty CDK app, and the template's size at 4 and at 400 nodes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.record import BenchError, Comparison, Figure, Result, Target
from lab import toolchain

CHECKOUT = Path(__file__).resolve().parent.parent
ROUNDS = 5  # taken in turns, so that a busy moment meets both; the median counts
SMALL, LARGE = 4, 400
# As near to nothing as CDK's own checks allow: a stack without a resource does not pass them.
EMPTY_APP = """\
import aws_cdk as cdk

app = cdk.App()
cdk.CfnWaitConditionHandle(cdk.Stack(app, "empty"), "Nothing")
app.synth()
"""


def measure(_options: Options) -> Result:
    ours, empty = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        (folder / "empty.py").write_text(EMPTY_APP, encoding="utf-8")
        for turn in range(ROUNDS):
            empty.append(synthesise(folder / "empty.py", folder / f"empty-{turn}", SMALL))
            ours.append(synthesise(CHECKOUT / "app.py", folder / f"ours-{turn}", SMALL))
        synthesise(CHECKOUT / "app.py", folder / "large", LARGE)
        small, large = templates(folder / "ours-0"), templates(folder / "large")
    differing = differing_leaves(small, large)
    return Result(
        comparisons=(
            Comparison(
                what=f"synthesis: seconds of the app's process, median of {ROUNDS}",
                ours=Figure(label="python app.py, 4 nodes", value=statistics.median(ours)),
                theirs=Figure(
                    label="an empty CDK app: one stack, one handle", value=statistics.median(empty)
                ),
                target=Target(limit=2.5, on_ratio=True),
                ours_to_theirs=True,
            ),
            Comparison(
                what="size of all templates",
                ours=_size_figure(LARGE, large),
                theirs=_size_figure(SMALL, small),
                ours_to_theirs=True,
            ),
        ),
        data={
            "rounds_s": {"app": ours, "empty": empty},
            "templates": {
                str(nodes): {"bytes": size(found), "resources": count_resources(found)}
                for nodes, found in ((SMALL, small), (LARGE, large))
            },
            "values_that_differ": differing,
        },
        notes=(f"{len(differing)} values differ between {SMALL} and {LARGE} nodes; the JSON lists them",),
    )


def synthesise(app: Path, output: Path, nodes: int) -> float:
    """Seconds of one fresh app process that writes its templates to `output`, as the CDK CLI starts it.

    Raises:
        BenchError: the app failed; its last lines are in the text.
    """
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(app)],
        cwd=CHECKOUT,
        env=environment(output, nodes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    elapsed_s = time.perf_counter() - started
    if done.returncode != 0:
        raise BenchError(f"{app.name} with {nodes} nodes ended with {done.returncode}: {done.stdout[-1500:]}")
    return elapsed_s


def _size_figure(nodes: int, found: dict[str, Any]) -> Figure:
    return Figure(
        label=f"{nodes} nodes",
        value=size(found),
        unit="bytes",
        note=f"{count_resources(found)} resources",
    )


def environment(output: Path, nodes: int) -> dict[str, str]:
    """What the CDK CLI gives to an app: the context of cdk.json, and where the templates go."""
    context: dict[str, Any] = json.loads((CHECKOUT / "cdk.json").read_text(encoding="utf-8"))["context"]
    overrides = {"cluster.nodes": str(nodes), "cluster.ami_id": "ami-0123456789abcdef0"}
    return toolchain.process_environment(
        {
            "CDK_OUTDIR": str(output),
            "CDK_CONTEXT_JSON": json.dumps({**context, **overrides}),
            "CDK_DEFAULT_ACCOUNT": "111122223333",
            "CDK_DEFAULT_REGION": "us-east-1",
        }
    )


def templates(output: Path) -> dict[str, Any]:
    """Every template of a cloud assembly, by file name."""
    found = {
        path.name: json.loads(path.read_text(encoding="utf-8")) for path in output.glob("*.template.json")
    }
    if not found:
        raise BenchError(f"{output} holds no template: the app wrote nothing")
    return found


def size(found: dict[str, Any]) -> float:
    """Bytes of the templates as the CLI uploads them."""
    return float(sum(len(json.dumps(template, indent=1)) for template in found.values()))


def count_resources(found: dict[str, Any]) -> int:
    return sum(len(template.get("Resources", {})) for template in found.values())


def differing_leaves(one: Any, other: Any, where: str = "") -> list[str]:
    """The paths at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [p for key in keys for p in differing_leaves(one.get(key), other.get(key), f"{where}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [path for i, (a, b) in pairs for path in differing_leaves(a, b, f"{where}/{i}")]
    return [] if one == other else [where]
