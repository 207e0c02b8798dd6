"""`--suggest` as JSON and for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from audit.documents import Json
from cluster.rules import SecurityGroupRule, SourceKind
from diagnosis.prose import shell_lines, wrapped
from diagnosis.rule_commands import rule_command, rule_line
from diagnosis.static import exposed_line
from diagnosis.suggest import Spare, Suggestion

ASKS = {
    "all": "every TCP port between members",
    "pinned": "the master port and the nodes' port range, nothing else",
    "efa": "all protocols between members, both ways",
}
AFTER = {True: "yes", False: "no", None: "cannot be told"}


def document(found: Suggestion) -> Json:
    """The public JSON. mesh_possible, exposed: of the world after `authorize` and `revoke`."""
    after = found.after
    return {
        "profile": found.profile.value,
        "problem": found.problem,
        "authorize": [_rule(item, authorize=True) for item in found.authorize],
        "revoke": [_spare(item) for item in found.revoke],
        "not_needed": [_spare(item) for item in found.not_needed],
        "kept": [rule_line(item) for item in found.kept],
        "instead": [_rule(item, authorize=True) for item in found.instead],
        "notes": list(found.notes),
        "mesh_possible": after.mesh_possible if after else None,
        "exposed": after.exposed_documents() if after else [],
    }


def _rule(rule: SecurityGroupRule, *, authorize: bool) -> Json:
    return {"rule": rule_line(rule), "command": rule_command(rule, authorize=authorize)}


def _spare(item: Spare) -> Json:
    return {**_rule(item.rule, authorize=False), "serves": item.also}


def lines(some: Sequence[Suggestion]) -> list[str]:
    """All suggestions; commands in the order in which they keep the mesh."""
    found = ["", "Suggested (nothing was changed; authorise first, then revoke):"]
    for item in some:
        found += ["", *_lines(item)]
    return found


def _lines(item: Suggestion) -> list[str]:
    name = item.profile.value
    found = wrapped(f"{name}: {ASKS[name]}")
    if item.problem:
        return found + wrapped(f"nothing can be suggested: {item.problem}", indent=3)
    if not item.authorize and not item.revoke:
        found += wrapped("nothing to change: these rules are there, and no other lets members pass", indent=3)
    for rule in item.authorize:
        found += shell_lines(rule_command(rule, authorize=True), indent=3)
    for spare in item.revoke:
        found += shell_lines(rule_command(spare.rule, authorize=False), indent=3)
        found += wrapped(f"# {spare.also}", indent=5, hanging=2) if spare.also else []
    found += _proof(item)
    if item.not_needed:
        found += wrapped("not needed by the mesh; revoke only what nobody else needs:", indent=3)
        for spare in item.not_needed:
            found += wrapped(f"- {rule_line(spare.rule)} ({spare.also})", indent=5, hanging=2)
    if item.instead:
        wide = [rule_line(rule) for rule in item.kept if rule.kind is not SourceKind.GROUP]
        told = f"the mesh uses what reaches more than members ({'; '.join(wide)}); it would not after:"
        found += wrapped(told, indent=3)
        for rule in item.instead:
            found += shell_lines(rule_command(rule, authorize=True), indent=5)
    for note in item.notes:
        found += wrapped(note, indent=3)
    return found


def _proof(item: Suggestion) -> list[str]:
    after = item.after
    if after is None:
        return []
    found = wrapped(f"then the mesh is possible: {AFTER[after.mesh_possible]}", indent=3)
    for cause in after.causes:
        found += wrapped(f"- {cause.id}: {cause.summary}", indent=5, hanging=2)
    for gap in after.unanswered if after.mesh_possible is None else ():
        found += wrapped(f"- {gap}", indent=5, hanging=2)
    for entry in after.exposed:
        found += wrapped(f"- still gets in: {exposed_line(entry)}", indent=5, hanging=2)
    return found
