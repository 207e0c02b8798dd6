"""Who is a member: a selection by tag, VPC, security group or id, applied to a snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.snapshot import ClusterSnapshot, Instance


@dataclass(frozen=True)
class Members:
    """The instances to judge.

    ids: running members, in the document's order. unread: why there may be more, or why one of
    these cannot be judged. fellows: not to be judged, but no strangers either: named and not running,
    or of an instance that nobody read and that may be a member.
    """

    ids: tuple[str, ...]
    unread: tuple[str, ...] = ()
    fellows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selection:
    """What a member is. Values of one kind are alternatives, kinds are joined with "and".

    tags: (key, value) pairs, all of which a member carries.
    """

    tags: tuple[tuple[str, str], ...] = ()
    vpc_ids: tuple[str, ...] = ()
    group_ids: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tags or self.vpc_ids or self.group_ids or self.instance_ids)

    def __str__(self) -> str:
        words = [f"tag {key}={value}" for key, value in self.tags]
        for name, values in (
            ("VPC", self.vpc_ids),
            ("security group", self.group_ids),
            ("instance", self.instance_ids),
        ):
            if values:
                words.append(f"{name} {' or '.join(values)}")
        return " and ".join(words)

    def members(self, snapshot: ClusterSnapshot) -> Members:
        """Find the running instances that are selected.

        Only an instance that the snapshot holds can be told by tag, VPC or group; with ids alone
        the instances' document is not needed.
        """
        problem = snapshot.instances.problem
        by_id_alone = bool(self.instance_ids) and not (self.tags or self.vpc_ids or self.group_ids)
        unread = [] if by_id_alone or not problem else [f"who is a member cannot be told: {problem}"]
        ids = [item.id for item in snapshot.instances if self._runs(item) and self._takes(item, snapshot)]
        fellows = []
        for name in self.instance_ids:
            found = snapshot.instances.get(name)
            if found is not None and not self._runs(found):
                unread.append(f"{name} is {found.state}: only a running instance is judged")
                fellows.append(name)
            elif found is None and not problem:
                unread.append(f"{name} is not among the instances")
            elif found is None and by_id_alone:
                ids.append(name)
        unread += self._untold(snapshot)
        if problem and not by_id_alone:
            seen = {interface.instance_id for interface in snapshot.interfaces} - {""}
            fellows += sorted(seen.difference(snapshot.instances.items))
        return Members(ids=tuple(ids), unread=tuple(unread), fellows=tuple(fellows))

    @staticmethod
    def _runs(item: Instance) -> bool:
        return item.state == "running"

    def _takes(self, item: Instance, snapshot: ClusterSnapshot) -> bool:
        if self.instance_ids and item.id not in self.instance_ids:
            return False
        if self.vpc_ids and item.vpc_id not in self.vpc_ids:
            return False
        if any(item.tags.get(key) != value for key, value in self.tags):
            return False
        return not self.group_ids or any(
            group in self.group_ids
            for interface in snapshot.interfaces_of(item.id)
            for group in interface.group_ids or ()
        )

    def _untold(self, snapshot: ClusterSnapshot) -> list[str]:
        """Running instances whose groups nobody listed may carry the group that was asked for."""
        if not self.group_ids:
            return []
        wanted = " or ".join(self.group_ids)
        return [
            f"whether {item.id} carries {wanted} cannot be told: its groups are not listed"
            for item in snapshot.instances
            if self._runs(item)
            and any(interface.group_ids is None for interface in snapshot.interfaces_of(item.id))
        ]
