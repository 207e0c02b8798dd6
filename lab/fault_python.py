"""What Python runs before a job's own program, so that one rank goes another way in the real torch."""

from __future__ import annotations

import textwrap

_OTHER_TORCH = """\
import importlib.machinery, os, signal, sys, time

def replace(module, real):
    def other(*args, **kwargs):
{body}
    module.{name} = other

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.distributed":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            replace(module, module.{name})
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


def other_torch(name: str, body: str) -> str:
    """A sitecustomize.py with which a program's torch.distributed.NAME(*args, **kwargs) is `body`.

    The body may call what it replaces as `real`, and has os, signal, sys and time. So a rank goes
    another way than the others, as a job's own program would, in the real torch.
    """
    return _OTHER_TORCH.format(name=name, body=textwrap.indent(body, " " * 8))


def slow_torch(seconds: float) -> str:
    """A sitecustomize.py with which the import of torch takes that much longer, as from a cold disk."""
    return (
        "import sys, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            sys.meta_path.remove(self)\n"
        f"            time.sleep({seconds})\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
