"""One rank of plain torch, run inside a node: init_process_group("gloo"), and what it says.

Speaks lines of JSON with `bench.raw_torch`: "ready" once torch is imported, waits for a line on
standard input (the start barrier), answers with what the call came to, and stays until its
input closes: a rank that left early would change what the others see.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--store", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--timeout-s", type=float, help="default: torch's own")
    options = parser.parse_args()
    timeout = None if options.timeout_s is None else timedelta(seconds=options.timeout_s)
    say({"ready": True})
    sys.stdin.readline()
    started = time.monotonic()
    message = None
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{options.store}",
            rank=options.rank,
            world_size=options.world_size,
            timeout=timeout,
        )
    except Exception as error:  # noqa: BLE001  # whatever torch raises is the measurement
        message = f"{type(error).__name__}: {error}"
    say({"after_s": round(time.monotonic() - started, 3), "message": message})
    sys.stdin.read()


if __name__ == "__main__":
    main()
