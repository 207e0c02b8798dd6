"""Routes: EC2 takes one for each destination of a table, where ministack keeps every one it is given."""

from __future__ import annotations

from typing import Any

from lab.control_plane import backend
from lab.control_plane.wire import Parameters, nested

DESTINATIONS = ("DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId")


def register() -> None:
    original = backend.ec2_actions["CreateRoute"]

    def create(params: Parameters) -> Any:
        request = nested(params)
        table = backend.route_tables.get(request.get("RouteTableId", "")) or {}
        wanted = next((request[key] for key in DESTINATIONS if request.get(key)), "")
        if any(route.get(key) == wanted for route in table.get("Routes", ()) for key in DESTINATIONS):
            return backend.ec2_error(
                "RouteAlreadyExists", f"The route identified by {wanted} already exists."
            )
        return original(params)

    backend.ec2_actions["CreateRoute"] = create
