"""The fleet: its group, its launch template, its placement group and its capacity."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator
from typing import Any

from audit.compare.scene import Scene, declared_tags, plain
from audit.difference import Change, Deviation, Meaning
from audit.documents import Json
from audit.intrinsics import UNRESOLVED, known
from audit.template import Resource

GROUP = "AWS::AutoScaling::AutoScalingGroup"
TEMPLATE = "AWS::EC2::LaunchTemplate"
PLACEMENT = "AWS::EC2::PlacementGroup"
RESERVATION = "AWS::EC2::CapacityReservation"

SIZES = ("MinSize", "MaxSize", "DesiredCapacity")


def compare(scene: Scene) -> None:
    """What instances are launched from, where, and how many of them."""
    _groups(scene)
    _placement_groups(scene)
    _reservations(scene)


def _groups(scene: Scene) -> None:
    own = list(scene.stack.of_type(GROUP))
    entries = scene.table("auto-scaling-groups", "AutoScalingGroupName", "the fleet") if own else None
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id)
        if entry is None:
            scene.missing(resource, "the fleet is gone: no member runs", Meaning.BREAKS_MESH)
            continue
        _sizes(scene, resource, entry)
        _count(scene, resource, entry)
        _settings(scene, resource, entry)
        _template(scene, resource, entry)


def _sizes(scene: Scene, resource: Resource, entry: Json) -> None:
    differing = [key for key in SIZES if plain(resource.get(key)) != plain(entry.get(key))]
    if not differing:
        return
    told = {key: int(resource.get(key)) for key in differing if known(resource.get(key))}
    actual = {key: entry.get(key) for key in differing}
    sizes = {key: int(resource.get(key)) for key in SIZES if known(resource.get(key))}
    change = Change(
        "autoscaling", "update_auto_scaling_group", {"AutoScalingGroupName": resource.id, **sizes}
    )
    fewer = int(entry.get("DesiredCapacity") or 0) < int(resource.get("DesiredCapacity") or 0)
    scene.add(
        Deviation(
            resource=resource.id,
            logical_id=resource.logical_id,
            attribute="size",
            expected=told,
            actual=actual,
            why="fewer nodes than were proven: a job of the proven size waits for ranks that never come"
            if fewer
            else "the fleet may grow past the nodes that were proven, or shrink",
            at_least=Meaning.BREAKS_MESH if fewer else Meaning.WEAKENS,
            revert=(change,),
        )
    )


def _count(scene: Scene, resource: Resource, entry: Json) -> None:
    """Members that run, against what the group itself wants."""
    wanted = int(entry.get("DesiredCapacity") or 0)
    listed = [str(item.get("InstanceId")) for item in entry.get("Instances") or ()]
    problem = scene.documents.problem("instances")
    if problem:
        scene.note(f"how many members run cannot be told: {problem}")
        return
    running = [item for item in listed if _state(scene, item) == "running"]
    if len(running) == wanted:
        return
    fewer = len(running) < wanted
    scene.add(
        Deviation(
            resource=resource.id,
            logical_id=resource.logical_id,
            attribute="running members",
            expected=wanted,
            actual=len(running),
            why="a mesh of all members cannot form: ranks are missing until the group has replaced them"
            if fewer
            else "more members run than the group wants",
            at_least=Meaning.BREAKS_MESH if fewer else Meaning.WEAKENS,
        )
    )


def _state(scene: Scene, instance_id: str) -> str:
    found = scene.snapshot.instances.get(instance_id)
    return found.state if found is not None else ""


def _settings(scene: Scene, resource: Resource, entry: Json) -> None:
    name = {"AutoScalingGroupName": resource.id}
    subnets = resource.get("VPCZoneIdentifier")
    if subnets is not None and known(subnets):
        change = Change(
            "autoscaling", "update_auto_scaling_group", {**name, "VPCZoneIdentifier": ",".join(subnets)}
        )
        actual = sorted(str(entry.get("VPCZoneIdentifier") or "").split(","))
        why = "new members start in other subnets than the stack told"
        scene.value(
            resource.id, resource.logical_id, "subnets", sorted(subnets), actual, why, revert=(change,)
        )
    for key in ("HealthCheckType", "HealthCheckGracePeriod"):
        told = resource.get(key)
        change = Change("autoscaling", "update_auto_scaling_group", {**name, key: told})
        why = "members are taken for ill sooner or later than the stack told"
        scene.value(resource.id, resource.logical_id, key, told, entry.get(key), why, revert=(change,))
    suspended = sorted(str(item.get("ProcessName")) for item in entry.get("SuspendedProcesses") or ())
    if suspended:
        change = Change("autoscaling", "resume_processes", {**name, "ScalingProcesses": suspended})
        why = "the group does not act: members that end are not replaced, or not launched"
        scene.value(
            resource.id, resource.logical_id, "suspended processes", [], suspended, why, revert=(change,)
        )
    scene.tags(resource.id, resource.logical_id, declared_tags(resource), entry.get("Tags") or ())


# --- the launch template -----------------------------------------------------------------------


def _template(scene: Scene, group: Resource, entry: Json) -> None:
    """The version that the group launches from holds what the template told."""
    used = entry.get("LaunchTemplate") or {}
    resource = next((item for item in scene.stack.of_type(TEMPLATE)), None)
    if resource is None:
        return
    problem = scene.documents.problem("launch-template-versions")
    if problem:
        scene.note(f"the launch template cannot be compared: {problem}")
        return
    versions = scene.documents.entries("launch-template-versions")
    version = _version(versions, str(used.get("Version") or "$Default"))
    if used.get("LaunchTemplateId") != resource.id or version is None:
        scene.value(
            group.id,
            group.logical_id,
            "launch template",
            resource.id,
            used.get("LaunchTemplateId"),
            "new members are launched from something else than the stack told",
        )
        return
    told = resource.get("LaunchTemplateData") or {}
    for attribute, expected, actual in _data(scene, resource, told, version):
        scene.add(
            Deviation(
                resource=resource.id,
                logical_id=resource.logical_id,
                attribute=f"{attribute} of version {version.get('VersionNumber')}",
                expected=expected,
                actual=actual,
                why="new members are launched from this version: they are something else than the stack told",
            )
        )
    newest = max(versions, key=lambda item: int(item.get("VersionNumber") or 0))
    if newest is not version and any(_data(scene, resource, told, newest)):
        scene.add(
            Deviation(
                resource=resource.id,
                logical_id=resource.logical_id,
                attribute=f"version {newest.get('VersionNumber')}",
                expected=None,
                actual=", ".join(name for name, _, _ in _data(scene, resource, told, newest)),
                why="nothing launches from this version: it differs from what the stack told",
                at_least=Meaning.COSMETIC,
            )
        )


def _version(versions: list[Json], wanted: str) -> Json | None:
    if wanted == "$Latest":
        return max(versions, key=lambda item: int(item.get("VersionNumber") or 0), default=None)
    if wanted == "$Default":
        return next((item for item in versions if item.get("DefaultVersion")), None)
    return next((item for item in versions if str(item.get("VersionNumber")) == wanted), None)


def _data(scene: Scene, resource: Resource, told: Json, version: Json) -> Iterator[tuple[str, Any, Any]]:
    """Attributes of a version that differ from what was told: (name, expected, actual)."""
    actual: Json = version.get("LaunchTemplateData") or {}
    for key in sorted({*told, *actual} - {"UserData", "TagSpecifications"}):
        expected, found = told.get(key), actual.get(key)
        if not _covers(expected, found):
            yield key, expected, found
    pattern = scene.stack.user_data.get(resource.logical_id)
    if pattern is not None and not re.fullmatch(pattern, _decoded(actual.get("UserData")), re.DOTALL):
        yield "UserData", "as the stack told", "something else"


DEFAULTS = ("disabled", "enabled", "interface", "default")
"""What EC2 may say of an option that nobody told."""


def _covers(told: Any, actual: Any) -> bool:
    """Whether what stands is what was told; EC2 may add empty lists and defaults inside, nothing else."""
    if told is UNRESOLVED or not known(told):
        return True
    if isinstance(told, dict) and isinstance(actual, dict):
        return all(_covers(told.get(key), actual.get(key)) for key in {*told, *actual})
    if isinstance(told, list) and isinstance(actual, list):
        return len(told) == len(actual) and all(map(_covers, told, actual))
    if told is None:
        return not actual or actual in DEFAULTS
    return bool(plain(told) == plain(actual))


def _decoded(text: Any) -> str:
    try:
        data = base64.b64decode(str(text or ""))
        return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode()
    except (ValueError, OSError):
        return ""


# --- placement and capacity -------------------------------------------------------------------


def _placement_groups(scene: Scene) -> None:
    own = list(scene.stack.of_type(PLACEMENT))
    entries = scene.table("placement-groups", "GroupName", "the placement group") if own else None
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id)
        why = "members are not kept close together: latency and bandwidth are whatever EC2 has"
        if entry is None or entry.get("State") in ("deleting", "deleted"):
            scene.missing(resource, why)
            continue
        told = resource.get("Strategy")
        scene.value(resource.id, resource.logical_id, "Strategy", told, entry.get("Strategy"), why)


def _reservations(scene: Scene) -> None:
    own = list(scene.stack.of_type(RESERVATION))
    entries = (
        scene.table("capacity-reservations", "CapacityReservationId", "the reservation") if own else None
    )
    for resource in own if entries is not None else ():
        entry = (entries or {}).get(resource.id)
        why = "members run on without it, but one that ends may find no capacity to start again"
        if entry is None:
            scene.missing(resource, why)
            continue
        scene.value(resource.id, resource.logical_id, "state", "active", entry.get("State"), why)
        if entry.get("State") != "active":
            continue
        for key, actual in (
            ("InstanceCount", "TotalInstanceCount"),
            ("InstanceType", "InstanceType"),
            ("InstanceMatchCriteria", "InstanceMatchCriteria"),
        ):
            told = resource.get(key)
            change = Change(
                "ec2",
                "modify_capacity_reservation",
                {"CapacityReservationId": resource.id, key: told},
            )
            scene.value(
                resource.id,
                resource.logical_id,
                key,
                told,
                entry.get(actual),
                why,
                revert=(change,) if key == "InstanceCount" else (),
            )
