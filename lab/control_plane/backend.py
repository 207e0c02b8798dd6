"""The one place that touches ministack's private names.

ministack has no plug-in interface, so the resource types it lacks are registered in its
tables and a few of its functions are replaced. Every private name that the control plane
relies on is named here and nowhere else, and `check_version` refuses to start with any
release but the pinned one: a name that moved must be seen here, not as a wrong answer in
a test of something else.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import ministack.app as _app
import ministack.core.responses as _responses
import ministack.services.autoscaling as _autoscaling
import ministack.services.cloudformation as _cloudformation
import ministack.services.cloudformation.custom_resource as _custom_resource
import ministack.services.cloudformation.drift as _drift
import ministack.services.cloudformation.engine as _engine
import ministack.services.cloudformation.handlers as _handlers
import ministack.services.cloudformation.provisioners as _provisioners
import ministack.services.cloudformation.stacks as _stacks
import ministack.services.cloudformation.wait_conditions as _wait_conditions
import ministack.services.cloudwatch as _cloudwatch
import ministack.services.ec2 as _ec2
import ministack.services.eventbridge as _eventbridge
import ministack.services.iam as _iam
import ministack.services.s3 as _s3

PINNED_VERSION = "1.5.33"

Record = dict[str, Any]
Store = MutableMapping[str, Record]

# The stores. Each is keyed by id within the account and region of the request.
instances: Store = _ec2._instances
network_interfaces: Store = _ec2._network_interfaces
security_groups: Store = _ec2._security_groups
subnets: Store = _ec2._subnets
vpcs: Store = _ec2._vpcs
volumes: Store = _ec2._volumes
placement_groups: Store = _ec2._placement_groups
launch_templates: Store = _ec2._launch_templates
flow_logs: Store = _ec2._flow_logs
vpc_endpoints: Store = _ec2._vpc_endpoints
route_tables: Store = _ec2._route_tables
network_acls: Store = _ec2._network_acls
nat_gateways: Store = _ec2._nat_gateways
addresses: Store = _ec2._addresses
ec2_tags: MutableMapping[str, list[dict[str, str]]] = _ec2._tags
auto_scaling_groups: Store = _autoscaling._asgs
composite_alarms: Store = _cloudwatch._composite_alarms

app: Any = _app.app


class VersionError(RuntimeError):
    """The installed ministack is not the release whose private names are known."""


def check_version() -> None:
    """Refuse any ministack but the pinned one.

    Raises:
        VersionError: names the installed and the pinned version.
    """
    installed = importlib.metadata.version("ministack")
    if installed != PINNED_VERSION:
        raise VersionError(
            f"ministack {installed} is installed, but the lab's control plane is written for "
            f"{PINNED_VERSION}: run make setup"
        )


# --- whose request this is --------------------------------------------------------------


def region() -> str:
    return str(_responses.get_region())


def account_id() -> str:
    return str(_responses.get_account_id())


def scope(account: str, region_name: str) -> AbstractContextManager[None]:
    """Act for this account and region within the block."""
    held: AbstractContextManager[None] = _responses.request_scope(account, region_name)
    return held


def now_iso() -> str:
    return str(_responses.now_iso())


def all_groups() -> list[tuple[str, str, str]]:
    """(account, region, name) of every auto scaling group there is."""
    return [key for key, _ in auto_scaling_groups.all_items()]  # type: ignore[attr-defined]


# --- the tables of actions and resource types -------------------------------------------

Answer = tuple[int, dict[str, str], bytes]
ec2_actions: dict[str, Callable[[Record], Any]] = _ec2._ACTION_MAP
auto_scaling_actions: dict[str, Callable[[Record], Any]] = _autoscaling._ACTION_MAP


def ec2_answer(element: str, inside: str) -> Answer:
    answer: Answer = _ec2._xml(200, element, inside)
    return answer


def ec2_error(code: str, message: str) -> Answer:
    answer: Answer = _ec2._error(code, escape(message), 400)
    return answer


def auto_scaling_answer(element: str, inside: str) -> Answer:
    answer: Answer = _autoscaling._xml(200, element, inside)
    return answer


def auto_scaling_error(code: str, message: str) -> Answer:
    answer: Answer = _autoscaling._error(code, escape(message))
    return answer


cloudformation_actions: dict[str, Callable[[Record], Any]] = _cloudformation._ACTION_HANDLERS


def cloudformation_answer(action: str, inside: str) -> Answer:
    result = f"<{action}Result>{inside}</{action}Result>"
    answer: Answer = _handlers._xml(200, f"{action}Response", result)
    return answer


def resource_type(name: str) -> Record:
    """ministack's handlers of a type, by `create`, `update` and `delete`."""
    return dict(_provisioners._RESOURCE_HANDLERS[name])


def add_resource_type(
    name: str, handlers: Record, *, replacing: tuple[str, ...], blocking: bool, tagged: bool
) -> None:
    """See `registration.register_type`; handlers take ministack's own arguments."""
    _provisioners._RESOURCE_HANDLERS[name] = {**handlers, "update_with_logical_id": True}
    _provisioners._REPLACING_PROPERTIES[name] = replacing
    if blocking:
        _blocking_types.add(name)
    if tagged:
        _provisioners._STACK_TAG_PROPERTY[name] = ("Tags", "list")


def add_drift_reader(
    name: str, read: Callable[[str, Record], Record | None], properties: frozenset[str]
) -> None:
    _drift._DRIFT_READERS[name] = (read, properties)


_blocking_types: set[str] = set()
_ministack_blocks: Callable[[str], bool] = _stacks._runs_on_worker_thread
_stacks._runs_on_worker_thread = lambda kind: kind in _blocking_types or _ministack_blocks(kind)


# --- CloudFormation: the running operation ---------------------------------------------


def physical_name(stack: str, logical_id: str) -> str:
    return str(_provisioners._physical_name(stack, logical_id, max_len=255))


def stack_id(stack: str) -> str:
    return str(_provisioners._cr_stack_id(stack))


def resource_definition(stack: str, logical_id: str) -> Record:
    """The resource as the template being deployed has it (with UpdatePolicy and so on)."""
    definition: Record = _provisioners._cfn_wait_condition_definition(stack, logical_id)
    return definition


def stack_record(stack: str) -> Record:
    record: Record = _cloudformation._stacks.get(stack) or {}
    return record


def find_stack(name_or_id: str) -> Record | None:
    record: Record | None = _handlers._resolve_stack(name_or_id)
    return record


def stack_events(stack_identifier: str) -> list[Record]:
    """Oldest first."""
    return list(_cloudformation._stack_events.get(stack_identifier, []))


def template_resources(stack: str) -> Record:
    """logical id -> definition, of the template being deployed."""
    body = stack_record(stack).get("_template_body")
    template = _engine._parse_template(body) if body else stack_record(stack).get("_template") or {}
    resources: Record = template.get("Resources") or {}
    return resources


def dependencies(definition: Record, names: set[str]) -> set[str]:
    found: set[str] = _stacks._extract_deps(definition, names)
    return found


def add_event(stack: str, logical_id: str, kind: str, status: str, reason: str) -> None:
    _stacks._add_event(stack_id(stack), stack, logical_id, kind, status, reason)


def replace_event_status(status_of: Callable[[Record, str, str], str]) -> None:
    """Let `status_of(stack, logical id, status)` decide what a resource's event says."""
    original = _stacks._add_event

    def add(
        stack_identifier: str, name: str, logical_id: str, kind: str, status: str, *rest: Any, **more: Any
    ) -> None:
        if logical_id != name:
            status = status_of(stack_record(name), logical_id, status)
        original(stack_identifier, name, logical_id, kind, status, *rest, **more)

    _stacks._add_event = add


def replace_resource_order(order: Callable[[list[str], Record], list[str]]) -> None:
    """Let `order` rearrange the sequence in which a stack's resources are made."""
    original = _stacks._topological_sort

    def sort(resources: Record, conditions: Record) -> list[str]:
        return order(original(resources, conditions), resources)

    _stacks._topological_sort = sort


def send_back_failed_update(kind: str) -> None:
    """A resource of this type whose update failed is rolled back too, not only the others."""
    original = _stacks._sends_back_failed_update
    _stacks._sends_back_failed_update = lambda name: name == kind or original(name)


def set_urls(handle_base: str, response_base: str) -> None:
    """Bases of the URLs handed out: wait-condition handles, and custom resources' answers."""
    _wait_conditions.handle_url = lambda token: f"{handle_base}{_wait_conditions.SIGNAL_PATH}{token}"
    _custom_resource._gateway_url = lambda: response_base


def handle_signals(url: str) -> dict[str, dict[str, str]] | None:
    """unique id -> signal received so far on a handle; None for an unknown handle."""
    token = _wait_conditions.token_from_url(url)
    if token is None:
        return None
    return dict(_wait_conditions._handles[token]["signals"])


def wait_for_resource_signals(stack: str, logical_id: str, kind: str) -> None:
    """Block until a resource's CreationPolicy, if it has one, has its signals.

    Raises:
        RuntimeError, TimeoutError: a FAILURE signal, or too few in time.
    """
    policy = resource_definition(stack, logical_id).get("CreationPolicy") or {}
    if "ResourceSignal" not in policy:
        return
    signal = policy["ResourceSignal"] or {}
    count = _wait_conditions.validate_count(signal.get("Count"), logical_id)
    timeout_s = _wait_conditions.validate_resource_signal_timeout(signal.get("Timeout"), logical_id)
    token = _wait_conditions.register_slot(stack_id(stack))
    _wait_conditions.wait_for(token, stack_id(stack), stack, logical_id, kind, count, timeout_s)


# --- single functions of other services ---------------------------------------------------


def instance_profile(*, arn: str = "", name: str = "") -> Record | None:
    profile: Record | None = _iam._lookup_instance_profile(name=name, arn=arn)
    return profile


def associate_instance_profile(instance_id: str, profile: Record) -> None:
    _ec2._upsert_iam_instance_profile_association(instance_id, profile)


def disassociate_instance_profile(instance_id: str) -> None:
    association = _ec2._find_active_iam_instance_profile_association(instance_id)
    if association:
        _ec2._mark_iam_instance_profile_association_disassociated(association)


def tag_filters_match(resource_id: str, filters: dict[str, list[str]]) -> bool:
    return bool(_ec2._resource_matches_tag_filters(resource_id, filters))


def prefix_list_id(service_name: str) -> str:
    """The id of the managed prefix list of a service such as `com.amazonaws.us-east-1.s3`."""
    return str(_ec2._aws_pl_id_from_name(service_name))


def compare_rules_by(key: Callable[[Record], Record]) -> None:
    """What ministack compares security group rules by (its own takes a description into account)."""
    _ec2._strip_descriptions = key


def put_event(source: str, detail_type: str, detail: str, resources: list[str]) -> None:
    """Put an AWS service's own event on the default bus."""
    entry = {"Source": source, "DetailType": detail_type, "Detail": detail, "Resources": resources}
    _eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def put_composite_alarm(name: str, properties: Record) -> None:
    """Raises ValueError with the service's answer when it refuses the alarm."""
    status, _, body = _cloudwatch._put_composite_alarm({}, {**properties, "AlarmName": name}, False, True)
    if status != 200:
        raise ValueError(body.decode() if isinstance(body, bytes) else str(body))


def set_scheduler_interval(seconds: float) -> None:
    """How often EventBridge looks for rules whose minute has come."""
    _eventbridge._SCHEDULER_TICK_INTERVAL = seconds


def replace_launch_template_codec(
    parse: Callable[[Record, str], Record], render: Callable[[Record], str]
) -> None:
    """How LaunchTemplateData is read from a request and written into an answer."""
    _ec2._parse_lt_data = lambda params, prefix="LaunchTemplateData": parse(params, prefix)
    _ec2._lt_data_xml = render


ListEntries = tuple[list[str], list[str], bool, str]  # keys, common prefixes, whether there is more, last one


def list_entries(objects: Record, prefix: str, delimiter: str, most: int, start_after: str) -> ListEntries:
    """The part of a bucket that a listing shows, in S3's order."""
    entries: ListEntries = _s3._collect_list_entries(objects, prefix, delimiter, most, start_after)
    return entries


def replace_list_objects_v2(answer: Callable[[str, Record, Record], Answer]) -> None:
    """Let `answer` (bucket name, query, its objects) serve ListObjectsV2 without FetchOwner."""
    original = _s3._list_objects_v2

    def listed(bucket_name: str, query: Record) -> Any:
        bucket = _s3._ensure_bucket(bucket_name)
        if bucket is None or query.get("fetch-owner"):
            return original(bucket_name, query)
        return answer(bucket_name, query, bucket["objects"])

    _s3._list_objects_v2 = listed


def log_calls(keep: Callable[[str], bool]) -> None:
    """What CloudTrail records: the calls that `keep` takes, by their actions' names.

    ministack looks for the action in the query; in the query protocol it stands in the body.
    """
    original = _app._maybe_record_cloudtrail

    def record(  # noqa: PLR0917 - ministack's own signature
        service: str, method: str, path: str, headers: Record, body: bytes, query: Record, *rest: Any
    ) -> None:
        if b"Action=" in body and "form" in headers.get("content-type", ""):
            query = {**query, "Action": parse_qs(body.decode(errors="replace")).get("Action", [""])[0]}
        if keep(_app._ct_event_name(service, method, path, headers, query)):
            original(service, method, path, headers, body, query, *rest)

    _app._maybe_record_cloudtrail = record
