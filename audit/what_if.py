"""`--what-if`: the audit of a world in which some changes were made; nothing is changed in the account."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit.documents import Documents, Json
from cluster.exposure import Exposed
from diagnosis.prose import plain, shell_lines, wrapped
from diagnosis.report import Verdict
from diagnosis.static import StaticFindings, exposed_line
from diagnosis.what_if import Applied, apply
from diagnosis.what_if_effect import Effect, Parted, effect, untracked, why_nothing
from diagnosis.what_if_words import Change

if TYPE_CHECKING:
    from audit.answer import Audit

PAIRS_SHOWN = 4
ANSWER = {True: "yes", False: "no", None: "cannot be told"}
GO_ON, CUT = "go-on", "cut"


@dataclass(frozen=True)
class Step:
    """One change and what it does. because: why it makes no difference; blank = it does, or nobody knows."""

    applied: Applied
    effect: Effect
    because: str = ""

    @property
    def no_op(self) -> bool | None:
        """Whether it changes nothing for the members; None = cannot be told."""
        if not self.effect.nothing:
            return False
        return True if self.effect.told else None


@dataclass(frozen=True)
class Prediction:
    """What some changes do, one after the other and together.

    before, after: the judgement of what stands and of the world after all changes.
    standing: what becomes of established connections of newly blocked pairs: `go-on`, `cut`; None = there
    are no such pairs.
    """

    steps: tuple[Step, ...]
    before: StaticFindings
    before_verdict: Verdict
    after: StaticFindings
    effect: Effect
    standing: str | None

    def document(self, after_verdict: Verdict) -> Json:
        """The public JSON."""
        return {
            "changed_in_account": False,
            "changes": [
                {
                    "change": item.applied.text,
                    "command": item.applied.command,
                    "no_op": item.no_op,
                    "because": item.because,
                    "notes": list(item.applied.notes),
                }
                for item in self.steps
            ],
            "before": _world(self.before, self.before_verdict),
            "after": _world(self.after, after_verdict),
            "newly_blocked": list(_runs(self.effect.newly_blocked)),
            "newly_open": list(_runs(self.effect.newly_open)),
            "newly_exposed": [_exposed(item) for item in self.effect.newly_exposed],
            "no_longer_exposed": [_exposed(item) for item in self.effect.no_longer_exposed],
            "established_connections": self.standing,
        }

    def lines(self) -> list[str]:
        """The same for a terminal."""
        lines = ["What if (nothing was changed in the account):"]
        for item in self.steps:
            lines += wrapped(item.applied.text, indent=2)
            for text in (item.because and f"changes nothing: {item.because}", *item.applied.notes):
                lines += wrapped(text, indent=5) if text else []
            lines += shell_lines(item.applied.command, indent=5)
        was, now = ANSWER[self.before.mesh_possible], ANSWER[self.after.mesh_possible]
        lines += ["", *wrapped(f"mesh possible: {was} -> {now}")]
        lines += _pair_lines("newly blocked", self.effect.newly_blocked, self._every)
        if self.standing:
            lines += wrapped(STANDING[self.standing], indent=3)
        lines += _pair_lines("newly open", self.effect.newly_open, self._every)
        for head, entries in (
            ("newly exposed", self.effect.newly_exposed),
            ("no longer exposed", self.effect.no_longer_exposed),
        ):
            for entry in entries:
                lines += wrapped(f"{head}: {exposed_line(entry)}", hanging=3)
        if self.effect.nothing:
            told = "nothing changes for the members" + ("" if self.effect.told else ", as far as was read")
            lines += wrapped(told)
        return [*lines, "", "And then:", ""]

    @property
    def _every(self) -> int:
        count = len(self.before.reachability.members)
        return count * (count - 1)


STANDING = {
    GO_ON: "connections that stand go on, for security groups track them: a running job hides it until it "
    "starts again",
    CUT: "connections that stand are cut, too",
}


def predict(
    documents: Documents, changes: Sequence[Change], judge: Callable[[Documents], Audit]
) -> tuple[Audit, Documents]:
    """The audit after the changes, with what they do, and the documents of that world.

    Without a change that is the audit of what stands.

    judge: audits documents; of the same members whatever the change.

    Raises:
        diagnosis.what_if_words.ChangeError: EC2 would refuse a change.
        diagnosis.what_if.NotReadError: what a change is about was not read.
    """
    first = before = judge(documents)
    world, steps, cut = documents, [], False
    for change in changes:
        applied = apply(world.documents, change, world.problems)
        changed = dataclasses.replace(world, documents=applied.documents)
        after = judge(changed)
        done = effect(before.findings, after.findings)
        if done.newly_blocked and applied.rule is not None and not applied.came:
            cut = cut or untracked(applied.rule, world.snapshot())
        steps.append(Step(applied, done, _because(applied, done, (world, before), (changed, after))))
        world, before = changed, after
    if not steps:
        return first, documents
    total = effect(first.findings, before.findings)
    cut = cut or any(item.at_once for item in total.newly_blocked)
    found = Prediction(
        steps=tuple(steps),
        before=first.findings,
        before_verdict=first.verdict,
        after=before.findings,
        effect=total,
        standing=(CUT if cut else GO_ON) if total.newly_blocked else None,
    )
    return dataclasses.replace(before, what_if=found), world


Looked = tuple[Documents, "Audit"]


def _because(applied: Applied, done: Effect, before: Looked, after: Looked) -> str:
    if applied.rule is None or not (done.nothing and done.told):
        return ""
    with_it, without = (after, before) if applied.came else (before, after)
    return why_nothing(applied.rule, without[0].snapshot(), without[1].findings, with_it[1].findings)


def _world(found: StaticFindings, verdict: Verdict) -> Json:
    return {
        "verdict": verdict.value,
        "mesh_possible": found.mesh_possible,
        "blocked": list(found.blocked()),
        "exposed": found.exposed_documents(),
    }


def _runs(parts: Iterable[Parted]) -> Iterable[Json]:
    for item in parts:
        yield from item.documents()


def _exposed(item: Exposed) -> Json:
    return {
        "protocol": item.protocol,
        "ports": item.ports,
        "source": item.source,
        "instances": list(item.instances),
    }


def _pair_lines(head: str, parts: Sequence[Parted], every: int) -> list[str]:
    if not parts:
        return []
    count = sum(item.pair_count for item in parts)
    lines = wrapped(f"{head}: {count} of {every} ordered pairs")
    runs = list(itertools.islice(_runs(parts), PAIRS_SHOWN + 1))
    lines += [
        plain(f"   - {run['source']} to {run['destination']}: {run['ports']}") for run in runs[:PAIRS_SHOWN]
    ]
    return lines + (["   - and more (see --json)"] if len(runs) > PAIRS_SHOWN else [])
