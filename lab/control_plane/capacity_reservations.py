"""On-demand capacity reservations: atomic, N or none, with the reason at once."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend, capacity
from lab.control_plane.launch_spec import LaunchSpec
from lab.control_plane.registration import register_ec2_action
from lab.control_plane.wire import (
    ApiError,
    Parameters,
    Reply,
    filters_of,
    matches,
    nested,
    new_id,
    tag_list,
    xml,
)

Record = dict[str, Any]

_reservations: dict[tuple[str, str, str], Record] = {}


def register() -> None:
    for name, handler in {
        "CreateCapacityReservation": _create_action,
        "CancelCapacityReservation": _cancel_action,
        "ModifyCapacityReservation": _modify_action,
        "DescribeCapacityReservations": _describe_action,
    }.items():
        register_ec2_action(name, handler)


def create(properties: Record) -> Record:
    """Reserve `InstanceCount` instances of `InstanceType` (API and template names alike).

    Raises:
        ApiError: there is not that much.
    """
    count = int(properties.get("InstanceCount", 1))
    instance_type, zone = properties["InstanceType"], properties.get("AvailabilityZone", "")
    _must_have(instance_type, zone, count, already=0)
    record = {
        "CapacityReservationId": new_id("cr"),
        "InstanceType": instance_type,
        "InstancePlatform": properties.get("InstancePlatform", "Linux/UNIX"),
        "AvailabilityZone": zone,
        "Tenancy": properties.get("Tenancy", "default"),
        "TotalInstanceCount": count,
        "EbsOptimized": str(properties.get("EbsOptimized", False)).lower() == "true",
        "EndDateType": properties.get("EndDateType", "unlimited"),
        "InstanceMatchCriteria": properties.get("InstanceMatchCriteria", "open"),
        "PlacementGroupArn": properties.get("PlacementGroupArn", ""),
        "State": "active",
        "CreateDate": backend.now_iso(),
    }
    _reservations[_key(record["CapacityReservationId"])] = record
    for specification in properties.get("TagSpecifications") or properties.get("TagSpecification") or []:
        backend.ec2_tags[record["CapacityReservationId"]] = [
            {"Key": str(tag["Key"]), "Value": str(tag.get("Value", ""))}
            for tag in specification.get("Tags") or specification.get("Tag") or []
        ]
    return record


def claim(spec: LaunchSpec, zone: str) -> None:
    """Raise EC2's refusal where the reservation that a launch targets has no room for one more instance.

    The lab sells no capacity blocks, so no reservation of its is one.

    Raises:
        ApiError: there is none of that id, it is not active, does not fit, or is used up.
    """
    if not spec.capacity_reservation_id:
        return
    record = _find(spec.capacity_reservation_id)
    named = f"The capacity reservation '{record['CapacityReservationId']}'"
    if spec.market_type == "capacity-block":
        raise ApiError("InvalidParameterValue", f"{named} is not a Capacity Block.")
    if record["State"] != "active":
        raise ApiError("InvalidCapacityReservationState", f"{named} is {record['State']}, not active.")
    for name, wanted in (("InstanceType", spec.instance_type), ("AvailabilityZone", zone)):
        if record[name] != wanted:
            raise ApiError("InvalidParameterValue", f"{named} is of {name} {record[name]}, not {wanted}.")
    own_group = record["PlacementGroupArn"].rpartition("/")[2]
    if own_group and own_group != spec.placement_group:
        raise ApiError("InvalidParameterValue", f"{named} stands in the placement group '{own_group}'.")
    if _used(record) >= record["TotalInstanceCount"]:
        raise ApiError(
            "ReservationCapacityExceeded",
            "The targeted Capacity Reservation does not have enough available instance capacity to fulfill "
            "your request.",
        )


def resize(reservation_id: str, count: int) -> Record:
    """Change how many instances are reserved.

    Raises:
        ApiError: no such reservation, or not that much capacity.
    """
    record = _find(reservation_id)
    _must_have(
        record["InstanceType"], record["AvailabilityZone"], count, already=record["TotalInstanceCount"]
    )
    record["TotalInstanceCount"] = count
    return record


def cancel(reservation_id: str) -> None:
    """Give a reservation up; one that is gone is no error."""
    record = _reservations.get(_key(reservation_id))
    if record is not None:
        record["State"] = "cancelled"


def attributes(record: Record) -> Record:
    """What Fn::GetAtt gives."""
    used = _used(record)
    return {
        "Id": record["CapacityReservationId"],
        "AvailabilityZone": record["AvailabilityZone"],
        "InstanceType": record["InstanceType"],
        "Tenancy": record["Tenancy"],
        "TotalInstanceCount": str(record["TotalInstanceCount"]),
        "AvailableInstanceCount": str(record["TotalInstanceCount"] - used),
    }


def _key(reservation_id: str) -> tuple[str, str, str]:
    return backend.account_id(), backend.region(), reservation_id


def _find(reservation_id: str) -> Record:
    record = _reservations.get(_key(reservation_id))
    if record is None:
        raise ApiError(
            "InvalidCapacityReservationId.NotFound",
            f"The capacity reservation '{reservation_id}' does not exist",
        )
    return record


def _must_have(instance_type: str, zone: str, count: int, *, already: int) -> None:
    limit = capacity.limits().get(instance_type)
    if limit is not None and count > max(limit, already):
        capacity.refuse(instance_type, zone)


def _used(record: Record) -> int:
    return sum(
        instance["CapacityReservationId"] == record["CapacityReservationId"]
        and instance["State"]["Name"] in ("pending", "running")
        for instance in backend.instances.values()
    )


def _create_action(params: Parameters) -> Reply:
    return Reply("CreateCapacityReservation", xml({"capacityReservation": _answer(create(nested(params)))}))


def _cancel_action(params: Parameters) -> Reply:
    reservation_id = nested(params).get("CapacityReservationId", "")
    _find(reservation_id)
    cancel(reservation_id)
    return Reply("CancelCapacityReservation", xml({"return": True}))


def _modify_action(params: Parameters) -> Reply:
    request = nested(params)
    if request.get("InstanceCount"):
        resize(request.get("CapacityReservationId", ""), int(request["InstanceCount"]))
    return Reply("ModifyCapacityReservation", xml({"return": True}))


def _describe_action(params: Parameters) -> Reply:
    request = nested(params)
    wanted, filters = request.get("CapacityReservationId", []), filters_of(request)
    for item in wanted:
        _find(item)
    names = {
        "state": "State",
        "instance-type": "InstanceType",
        "availability-zone": "AvailabilityZone",
        "placement-group-arn": "PlacementGroupArn",
    }
    listed = [
        _answer(record)
        for key, record in _reservations.items()
        if key[:2] == _key("")[:2]
        and (not wanted or record["CapacityReservationId"] in wanted)
        and all(matches(filters[name], [record[field]]) for name, field in names.items() if name in filters)
        and backend.tag_filters_match(record["CapacityReservationId"], filters)
    ]
    return Reply("DescribeCapacityReservations", xml({"capacityReservationSet": listed}))


def _answer(record: Record) -> Record:
    answer = {key[0].lower() + key[1:]: value for key, value in record.items() if value != ""}
    return {
        **answer,
        "ownerId": backend.account_id(),
        "availableInstanceCount": record["TotalInstanceCount"] - _used(record),
        "tagSet": tag_list(backend.ec2_tags.get(record["CapacityReservationId"], [])),
    }
