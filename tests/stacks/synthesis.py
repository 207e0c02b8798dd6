"""Synthesises the app in this process, once for each context."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.toolchain import node_bin_dir

# jsii starts Node when aws_cdk is first used, and takes the one on PATH.
os.environ["PATH"] = f"{node_bin_dir()}{os.pathsep}{os.environ['PATH']}"
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "1")
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")

import aws_cdk as cdk

import app

CHECKOUT = Path(__file__).resolve().parents[2]
AMI = "ami-0123456789abcdef0"
RESERVATION = "cr-0123456789abcdef0"
REGION = "us-east-1"
ACCOUNT = "123456789012"

Json = dict[str, Any]


@dataclass(frozen=True)
class Synthesis:
    """What one synthesis wrote. folder: the cloud assembly."""

    folder: Path
    cluster: Json
    evidence: Json

    def of_type(self, kind: str) -> dict[str, Json]:
        """Logical id -> resource of the cluster's template."""
        return {i: r for i, r in self.cluster["Resources"].items() if r["Type"] == kind}

    def one(self, kind: str) -> Json:
        """The properties of the only resource of a type."""
        (resource,) = self.of_type(kind).values()
        properties: Json = resource["Properties"]
        return properties

    @property
    def launch_data(self) -> Json:
        data: Json = self.one("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
        return data

    def statements(self) -> Iterator[Json]:
        """Every statement of every role's own policies."""
        for role in self.of_type("AWS::IAM::Role").values():
            for policy in role["Properties"].get("Policies", []):
                yield from policy["PolicyDocument"]["Statement"]


def cdk_json() -> Json:
    context: Json = json.loads((CHECKOUT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return context


def new_app(folder: Path, **context: Any) -> cdk.App:
    """An app with cdk.json's context and these values over it (`cluster__nodes` is cluster.nodes)."""
    os.environ["CDK_DEFAULT_ACCOUNT"], os.environ["CDK_DEFAULT_REGION"] = ACCOUNT, REGION
    given = {key.replace("__", "."): value for key, value in context.items()}
    return cdk.App(outdir=str(folder), context={**cdk_json(), "cluster.ami_id": AMI, **given})


@functools.cache
def _assemblies() -> Path:
    """Where assemblies stand for as long as this process remembers them."""
    made = Path(tempfile.mkdtemp(prefix="fullmesh-synth-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@functools.cache
def synthesise(**context: Any) -> Synthesis:
    """Synthesise with these values over cdk.json's, guard and CDK's own validation included."""
    folder = Path(tempfile.mkdtemp(dir=_assemblies()))
    application = new_app(folder, **context)
    app.build(application)
    application.synth()
    name = str(context.get("cluster__name", "fullmesh"))
    return Synthesis(
        folder=folder,
        cluster=json.loads((folder / f"{name}.template.json").read_text(encoding="utf-8")),
        evidence=json.loads((folder / f"{name}-evidence.template.json").read_text(encoding="utf-8")),
    )
