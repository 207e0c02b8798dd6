"""Whom an audit judges and by what, apart from the documents: so that the same is asked of several worlds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from audit.answer import Audit, attach, audit_stack
from audit.difference import Meaning
from audit.documents import Documents
from audit.drift import OurStack, members_of
from audit.members import Members, Selection
from audit.what_if import predict
from cluster.ports import PortRange
from diagnosis.suggest import Suggestion, suggest
from diagnosis.suggest_rules import Profile
from diagnosis.what_if_words import Change


@dataclass(frozen=True)
class Question:
    """ours: None = a cluster that something else made. members: those of what stands."""

    members: Members
    master_port: int
    ephemeral: PortRange
    ours: OurStack | None
    fail_on: Meaning

    @classmethod
    def of_selection(
        cls,
        documents: Documents,
        selection: Selection,
        *,
        master_port: int,
        ephemeral: PortRange,
        fail_on: Meaning,
    ) -> Question:
        members = selection.members(documents.snapshot())
        return cls(members=members, master_port=master_port, ephemeral=ephemeral, ours=None, fail_on=fail_on)

    @classmethod
    def of_stack(cls, documents: Documents, ours: OurStack, *, fail_on: Meaning) -> Question:
        return cls(
            members=members_of(documents, ours, documents.snapshot()),
            master_port=ours.master_port,
            ephemeral=ours.ephemeral_ports,
            ours=ours,
            fail_on=fail_on,
        )

    def judge(self, documents: Documents) -> Audit:
        """The audit of some documents."""
        if self.ours is not None:
            return audit_stack(documents, self.ours, fail_on=self.fail_on)
        found = attach(
            documents.snapshot(), self.members, master_port=self.master_port, ephemeral=self.ephemeral
        )
        return dataclasses.replace(found, fail_on=self.fail_on)

    def answer(self, documents: Documents, changes: Sequence[Change], profiles: Sequence[Profile]) -> Audit:
        """The audit of what stands, or of the world after some changes; with suggestions for it.

        Raises:
            diagnosis.what_if_words.ChangeError: EC2 would refuse a change.
            diagnosis.what_if.NotReadError: what a change is about was not read.
        """
        found, world = predict(documents, changes, self.judge)
        if not profiles:
            return found
        made = suggest(
            world.snapshot(),
            self.members.ids,
            self.master_port,
            self.ephemeral,
            profiles=profiles,
            unread_members=self.members.unread,
            fellows=self.members.fellows,
        )
        return dataclasses.replace(found, suggestions=tuple(map(self._by_deploying, made)))

    def _by_deploying(self, made: Suggestion) -> Suggestion:
        """A stack of ours gets its rules from the code: by hand they would be drift."""
        if self.ours is None or not (made.authorize or made.revoke):
            return made
        context = f"-c cluster.name={self.ours.name} -c cluster.port_profile={made.profile.value}"
        note = f"this stack gets its rules by: cdk deploy --all {context}; made by hand they are drift"
        return dataclasses.replace(made, notes=(*made.notes, note))
