"""How the CDK's context gives settings: the `cluster` object, and single values over it."""

from __future__ import annotations

import json
import re
from typing import Any, Collection, Dict, List, Mapping, Tuple

from cluster.settings import shown

CONTEXT_KEY = "cluster"
_PREFIX = f"{CONTEXT_KEY}."


def overrides_of(context: Mapping[str, Any]) -> Dict[str, Any]:
    """Of a whole context, the values for single settings (`cluster.nodes`)."""
    return {key: value for key, value in context.items() if key.startswith(_PREFIX)}


def strays(context: Mapping[str, Any], settings: Collection[str]) -> List[str]:
    """A line for each key that means a setting and would be passed over in silence: nodes, Cluster.nodes."""
    found = []
    for key, value in context.items():
        if key.startswith(_PREFIX):
            continue
        words = re.split(r"[.:/_-]", key, maxsplit=1)
        name = words[1] if len(words) > 1 and words[0].lower() in ("cluster", "clusters") else key
        if name in settings:
            found.append(f"{shown(key)}: is not a setting; did you mean -c {_PREFIX}{name}={shown(value)}?")
    return found


def gather(context: Any, overrides: Mapping[str, Any]) -> Tuple[Dict[str, Any], List[str]]:
    """The settings that are given, by name and as they came; and what is wrong with how they are given.

    context: the object, its JSON text, or None. overrides: by `cluster.NAME` or NAME.
    """
    problems: List[str] = []
    if isinstance(context, str):
        try:
            context = json.loads(context)
        except (ValueError, RecursionError) as error:
            way = f"use -c {_PREFIX}nodes=8 for one value"
            problems.append(f"{CONTEXT_KEY}: {shown(context)} is not JSON ({error}); {way}")
            context = None
    if context is not None and not isinstance(context, Mapping):
        problems.append(
            f"{CONTEXT_KEY}: expected an object, got {shown(context)}; see the cluster object in cdk.json"
        )
        context = None
    given = {str(key): value for key, value in (context or {}).items()}
    for key, value in overrides.items():
        given[key[len(_PREFIX) :] if key.startswith(_PREFIX) else key] = value
    return given, problems
