"""`python -m lab.control_plane --port N`: the embedded stand-in for AWS, alone."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from lab.control_plane import DEFAULT_PUBLIC_HOST, DEFAULT_PUBLIC_PORT
from lab.control_plane.process import die_with, fresh_scratch, leave, settings


def main(arguments: list[str]) -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m lab.control_plane", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1")
    parser.add_argument("--public-host", default=DEFAULT_PUBLIC_HOST, help="the name nodes call it by")
    parser.add_argument("--public-port", type=int, default=DEFAULT_PUBLIC_PORT, help="the port nodes use")
    parser.add_argument("--parent", type=int, help="end when the process with this id ends")
    parser.add_argument("--scratch", type=Path, help="folder for temporary files; it is emptied first")
    options = parser.parse_args(arguments)
    scratch = fresh_scratch(options.scratch)
    os.environ.update(settings(options.port, options.public_host, scratch))
    if options.parent is not None:
        die_with(options.parent)
    # ministack reads its settings while it is imported, so the import comes after them.
    from lab.control_plane.server import serve  # noqa: PLC0415

    status = 0
    try:
        serve(options.port, public_host=options.public_host, public_port=options.public_port)
    except (RuntimeError, OSError, ValueError) as error:
        sys.stderr.write(f"control plane: {error}\n")
        status = 1
    leave(scratch, status)


if __name__ == "__main__":
    main(sys.argv[1:])
