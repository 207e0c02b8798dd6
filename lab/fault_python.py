"""What Python runs before a job's own program, so that one rank goes another way in the real torch."""

from __future__ import annotations

import textwrap

from lab.fault_host import Launch, OnNode, Together
from lab.fault_scene import Injection

_FOLDER = "/run/fault"
# It looks at the module when that is loaded, not when it is only looked for, as the probe does.
_SITE_CUSTOMIZE = """\
import importlib.machinery, os, signal, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "{module}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            return None
        load = spec.loader.exec_module
        def exec_module(module):
{before}
            load(module)
{after}
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""
_REPLACE = """\
real = module.{name}
def other(*args, **kwargs):
{body}
module.{name} = other
"""


def on_rank(rank: int, text: str) -> Injection:
    """Python on that node runs this before the job's own program."""
    script = f"mkdir -p {_FOLDER}; cat >{_FOLDER}/sitecustomize.py <<'EOF'\n{text}EOF\n"
    return Together(
        (
            OnNode(rank=rank, script=script, undo=f"rm -rf {_FOLDER}"),
            Launch(changes={rank: {"PYTHONPATH": _FOLDER}}),
        )
    )


def other_torch(name: str, body: str) -> str:
    """A sitecustomize.py with which a program's torch.distributed.NAME(*args, **kwargs) is `body`.

    The body may call what it replaces as `real`, and has os, signal, sys and time. So a rank goes
    another way than the others, as a job's own program would, in the real torch.
    """
    replaced = _REPLACE.format(name=name, body=textwrap.indent(body, "    "))
    return _site("torch.distributed", after=replaced)


def slow_torch(seconds: float) -> str:
    """A sitecustomize.py with which the import of torch takes that much longer, as from a cold disk."""
    return _site("torch", before=f"time.sleep({seconds})")


def _site(module: str, before: str = "pass", after: str = "pass") -> str:
    indent = " " * 12
    return _SITE_CUSTOMIZE.format(
        module=module, before=textwrap.indent(before, indent), after=textwrap.indent(after, indent)
    )
