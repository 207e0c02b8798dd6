"""Run a benchmark's inner half inside namespaces of its own, in a fresh process that dies with this one.

The lab's sandbox wants a single-threaded process to begin with; and everything a benchmark
starts there ends with it, however it ends.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.record import BenchError
from lab import sandbox

CHECKOUT = Path(__file__).resolve().parent.parent


def call(module: str, **arguments: Any) -> Any:
    """What `module.inside(**arguments)` returns; arguments and answer travel as JSON.

    Raises:
        BenchError: it failed; its message, or the end of its traceback, is in the text.
    """
    parent = os.getpid()
    done = subprocess.run(
        [sys.executable, "-m", "bench.contained", module],
        cwd=CHECKOUT,
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: sandbox.die_with_parent(signal.SIGKILL, parent),
        check=False,
    )
    answer = json.loads(done.stdout) if done.stdout.strip() else {}
    if done.returncode != 0 or "answer" not in answer:
        raise BenchError(answer.get("error") or f"{module} ended with exit status {done.returncode}")
    return answer["answer"]


def main() -> int:
    module = sys.argv[1]
    arguments = json.load(sys.stdin)
    try:
        child = sandbox.contain()
        if child:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = {"answer": importlib.import_module(module).inside(**arguments)}
    except (BenchError, sandbox.SandboxError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
    return 0 if "answer" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
