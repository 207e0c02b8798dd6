"""Everything the control plane adds to ministack, registered in one place."""

from __future__ import annotations

import asyncio
import logging
import os

from lab.control_plane import (
    auto_scaling,
    auto_scaling_api,
    auto_scaling_resource,
    backend,
    capacity,
    capacity_reservations,
    ec2_api,
    instance_settings,
    instance_types,
    instances,
    network_acl_resources,
    network_acls,
    network_resources,
    object_listing,
    resources,
    routes,
    security_group_resources,
    security_groups,
    stack_api,
    stack_order,
)
from lab.control_plane.launch_spec import parse_template_data, render_template_data

SCHEDULER_INTERVAL_S = 1.0
GROUP_INTERVAL_S = 1.0

READING = ("Describe", "Get", "List", "Head", "Lookup", "PUT.", "GET.", "POST.", "HEAD.")
"""Calls that the lab's CloudTrail leaves out: the lab itself asks several times a second."""

log = logging.getLogger("lab.control_plane")


def register_all(*, handle_base: str, response_base: str) -> None:
    """Add the lab's actions and resource types; once per process, before serving.

    handle_base: what a node puts before a wait-condition handle's path.
    response_base: the same for custom resources, whose code runs on the host.
    """
    backend.set_urls(handle_base, response_base)
    backend.set_scheduler_interval(SCHEDULER_INTERVAL_S)
    backend.replace_launch_template_codec(parse_template_data, render_template_data)
    backend.log_calls(lambda name: not name.startswith(READING))
    capacity.set_limits(capacity.parse(os.environ.get(capacity.ENVIRONMENT_VARIABLE, "")))
    for part in (
        ec2_api,
        instance_settings,
        instance_types,
        security_groups,
        security_group_resources,
        network_acls,
        network_acl_resources,
        routes,
        network_resources,
        capacity_reservations,
        resources,
        auto_scaling_api,
        auto_scaling_resource,
        stack_order,
        stack_api,
        object_listing,
    ):
        part.register()


async def background() -> None:
    """Work that no request triggers: groups that want instances try again, ended members go."""
    while True:
        await asyncio.sleep(GROUP_INTERVAL_S)
        for account, region, name in backend.all_groups():
            with backend.scope(account, region):
                try:
                    auto_scaling.reconcile(name)
                    instances.purge()
                except Exception:
                    log.exception("auto scaling group %s", name)
