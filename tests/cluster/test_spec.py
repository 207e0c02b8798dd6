"""The specification: defaults, limits, and what may not be combined."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict

import pytest

from cluster.ports import PortRange
from cluster.spec import Architecture, ClusterSpec, PortProfile, SpecError


def problems(context: Any = None, **overrides: Any) -> tuple[str, ...]:
    """What from_context complains of; () when it does not."""
    try:
        ClusterSpec.from_context(context, overrides)
    except SpecError as error:
        return error.problems
    return ()


def test_an_empty_context_is_the_defaults() -> None:
    """Without a cluster object every default holds, and they fit together."""
    assert ClusterSpec.from_context() == ClusterSpec()
    assert ClusterSpec.from_context({}) == ClusterSpec()


def test_overrides_are_turned_into_the_settings_types() -> None:
    """`-c cluster.KEY=VALUE` gives text; it wins over the object and becomes the setting's type."""
    spec = ClusterSpec.from_context(
        {"nodes": 2, "flow_logs": True},
        {
            "cluster.nodes": "8",
            "flow_logs": "false",
            "port_profile": "pinned",
            "cluster.pinned_ports": "40000-40999",
            "alarm_round_trip_ms": "2.5",
        },
    )
    assert (spec.nodes, spec.flow_logs, spec.port_profile) == (8, False, PortProfile.PINNED)
    assert (spec.pinned_ports, spec.alarm_round_trip_ms) == (PortRange(40000, 40999), 2.5)


def test_the_object_may_come_as_json_text() -> None:
    """`-c cluster='{...}'` reaches the app as text."""
    assert ClusterSpec.from_context('{"nodes": 6}').nodes == 6


def test_all_problems_are_told_at_once() -> None:
    """One run names an unknown key, a wrong kind, a wrong range and a clash, each with what to do."""
    assert problems(
        {
            "nodez": 3,
            "placement": "clustr",
            "master_port": 80,
            "capacity_reservation_id": "cr-0123456789abcdef0",
        },
        nodes="many",
    ) == (
        "cluster.nodez: is not a setting; did you mean nodes?",
        "cluster.placement: 'clustr' is none of cluster, spread, none; set it in cdk.json or with "
        "-c cluster.placement=...",
        "cluster.master_port: 80 is not within 1024-65535; set it in cdk.json or with -c "
        "cluster.master_port=...",
        "cluster.nodes: 'many' is not a whole number; set it in cdk.json or with -c cluster.nodes=...",
        "cluster.capacity_reservation_id: cr-0123456789abcdef0 is not used with capacity=none; "
        "set cluster.capacity=existing or block, or leave the id out",
    )


def test_a_clash_with_a_refused_value_is_not_told() -> None:
    """What would be judged by a default in place of a refused value stays out."""
    told = problems({"capacity": "reserve", "capacity_reservation_id": "cr-0123456789abcdef0"})
    assert [line.partition(":")[0] for line in told] == ["cluster.capacity"]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"nodes": 1}, "1 is not within 2-1000"),
        ({"nodes": 2.5}, "2.5 is not a whole number"),
        ({"nodes": True}, "True is not a number"),
        ({"flow_logs": "maybe"}, "'maybe' is neither true nor false"),
        (
            {"name": "Demo"},
            "'Demo' is not 2-40 lower-case letters, digits and hyphens, beginning with a letter",
        ),
        ({"name": 7}, "7 is not text"),
        ({"instance_type": "c7i"}, "'c7i' is not FAMILY.SIZE as EC2 spells it, e.g. c7i.xlarge"),
        ({"pinned_ports": "50000"}, "50000 holds 1 ports, fewer than 4 a rank (16 for 4 nodes)"),
        ({"pinned_ports": "500-50000"}, "500-50000 is not within 1024-65535"),
        ({"pinned_ports": "x"}, "'x' is not a port range such as 50000-50999"),
        ({"retention_days": 8}, "8 is none of 1, 3, 5, 7, 14"),
        ({"conntrack_idle_timeout_s": 30}, "30 is not within 60-432000"),
        ({"proof_timeout_s": 43201}, "43201 is not within 60-43200"),
        (
            {"vpc_cidr": "10.0.0.1/16"},
            "'10.0.0.1/16' is not an IPv4 range such as 10.20.0.0/16 with its host bits zero",
        ),
        ({"vpc_cidr": "10.0.0.0/8"}, "10.0.0.0/8 is not within the /16 to /28 that a VPC can have"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(context: Dict[str, Any], message: str) -> None:
    """The line begins with the setting and holds the value and the allowed values."""
    if "pinned_ports" in context:
        context = {**context, "port_profile": "pinned"}
    (line,) = problems(context)
    key = next(iter(context))
    assert line.startswith(f"cluster.{key}: {message}")


@pytest.mark.parametrize(
    ("context", "line"),
    [
        (
            {"instance_type": "t3.large"},
            "cluster.instance_type: t3.large is a T type, which no cluster placement group takes; choose "
            "e.g. "
            "c7i.xlarge, or set cluster.placement=none",
        ),
        (
            {"instance_type": "p3.16xlarge", "conntrack_idle_timeout_s": 350},
            "cluster.conntrack_idle_timeout_s: 350 s cannot be set on p3.16xlarge, which is older than the "
            "Nitro System and forgets an idle connection after 432000 s; set "
            "cluster.conntrack_idle_timeout_s=432000, or choose e.g. c7i.xlarge",
        ),
        (
            {"subnets": 2},
            "cluster.subnets: 2 subnets lie in 2 zones, but a cluster placement group has one zone; set "
            "cluster.subnets=1, or cluster.placement=spread or none",
        ),
        (
            {"placement": "spread", "nodes": 8},
            "cluster.nodes: 8 nodes do not fit a spread placement group, which takes 7 a zone (7 with "
            "cluster.subnets=1); set cluster.placement=cluster or none",
        ),
        (
            {"capacity": "existing"},
            "cluster.capacity_reservation_id: '' but capacity=existing needs an id cr-...; find it with "
            "aws ec2 describe-capacity-reservations --filters Name=state,Values=active",
        ),
        (
            {"capacity": "block", "capacity_reservation_id": "cr-0123456789abcdef0"},
            "cluster.placement: cluster cannot be combined with a capacity block, which takes no "
            "placement group "
            "(it is close together); set cluster.placement=none",
        ),
        (
            {
                "capacity": "block",
                "capacity_reservation_id": "cr-0123456789abcdef0",
                "placement": "none",
                "nodes": 65,
            },
            "cluster.nodes: 65 is more than the 64 instances of one capacity block; set cluster.nodes to "
            "2-64",
        ),
        (
            {
                "capacity": "block",
                "capacity_reservation_id": "cr-0123456789abcdef0",
                "placement": "none",
                "subnets": 2,
            },
            "cluster.subnets: 2 subnets lie in as many zones, but a capacity block lies in one; "
            "set cluster.subnets=1",
        ),
        (
            {"network": "isolated"},
            "cluster.torch_source: index cannot be reached from network=isolated; set "
            "cluster.torch_source=wheelhouse with cluster.wheelhouse_path, or image with an ami_id that "
            "holds torch",
        ),
        (
            {"torch_source": "wheelhouse"},
            "cluster.wheelhouse_path: '' but torch_source=wheelhouse needs a folder of wheels; make one "
            "with pip "
            f"download torch==2.13.0 --index-url {ClusterSpec().torch_index_url} -d wheelhouse",
        ),
        (
            {"wheelhouse_path": "wheels"},
            "cluster.wheelhouse_path: wheels is not used with torch_source=index; set "
            "cluster.torch_source=wheelhouse, or leave the path out",
        ),
        (
            {"torch_source": "image"},
            "cluster.ami_id: '' but torch_source=image needs the id of an image that holds torch (the "
            "plain ones do "
            "not); set cluster.ami_id=ami-...",
        ),
        (
            {"architecture": "arm64", "instance_type": "g5.xlarge"},
            "cluster.architecture: arm64 does not fit instance type g5.xlarge, which is x86_64; set "
            "cluster.architecture=x86_64 or leave it out",
        ),
        (
            {"port_profile": "pinned", "nodes": 300},
            "cluster.pinned_ports: 50000-50999 holds 1000 ports, fewer than 4 a rank (1200 for 300 "
            "nodes); set e.g. "
            "cluster.pinned_ports=50000-51999",
        ),
        (
            {"proof_timeout_s": 2129},
            "cluster.proof_timeout_s: 2129 s is less than the 2130 s in which a proof with deadline_s=300 "
            "and torch_source=index may still end well; set cluster.proof_timeout_s=2130 or more, or lower "
            "cluster.deadline_s",
        ),
        (
            {"capacity": "reservation", "placement": "spread"},
            "cluster.placement: spread cannot be combined with capacity=reservation: spread placement groups "
            "take no capacity reservation; set cluster.placement=cluster or none, or cluster.capacity=none",
        ),
        (
            {"capacity": "reservation", "placement": "none", "subnets": 2},
            "cluster.subnets: 2 subnets lie in as many zones, but a capacity reservation lies in one; set "
            "cluster.subnets=1, or cluster.capacity=none",
        ),
        (
            {
                "capacity": "existing",
                "capacity_reservation_id": "cr-0123456789abcdef0",
                "placement": "none",
                "subnets": 2,
            },
            "cluster.subnets: 2 subnets lie in as many zones, but a capacity reservation lies in one; set "
            "cluster.subnets=1, or cluster.capacity=none",
        ),
        (
            {"port_profile": "efa", "placement": "none", "subnets": 2},
            "cluster.subnets: 2 subnets lie in as many zones, and the traffic of an EFA does not cross "
            "zones; set cluster.subnets=1, or cluster.port_profile=all",
        ),
        (
            {"availability_zone": "us-east-1b", "placement": "none", "subnets": 2},
            "cluster.availability_zone: us-east-1b does not name a zone of its own for each of 2 subnets; "
            "name as many zones as cluster.subnets, e.g. eu-central-1a,eu-central-1b, or leave them out",
        ),
        (
            {"availability_zone": "us-east-1b,us-east-1b", "placement": "none", "subnets": 2},
            "cluster.availability_zone: us-east-1b,us-east-1b does not name a zone of its own for each of 2 "
            "subnets; name as many zones as cluster.subnets, e.g. eu-central-1a,eu-central-1b, or leave them "
            "out",
        ),
        (
            {"availability_zone": "us-east-1a,us-east-1b"},
            "cluster.availability_zone: us-east-1a,us-east-1b does not name a zone of its own for each of 1 "
            "subnets; name as many zones as cluster.subnets, e.g. eu-central-1a,eu-central-1b, or leave them "
            "out",
        ),
        (
            {"vpc_cidr": "10.0.0.0/26", "nodes": 40},
            "cluster.vpc_cidr: 10.0.0.0/26 leaves 27 addresses a subnet for 40 nodes; set e.g. "
            "cluster.vpc_cidr=10.20.0.0/16",
        ),
    ],
)
def test_what_may_not_be_combined_is_refused(context: Dict[str, Any], line: str) -> None:
    """Each clash is one line: setting, value, why, and what to set."""
    assert problems(context) == (line,)


@pytest.mark.parametrize(
    "context",
    [
        {"instance_type": "t4g.small", "placement": "none"},
        {"instance_type": "p3.16xlarge"},
        {"instance_type": "i3.metal", "conntrack_idle_timeout_s": 350},
        {"instance_type": "p3dn.24xlarge", "conntrack_idle_timeout_s": 350},
        {"subnets": 2, "placement": "spread", "nodes": 14},
        {"network": "isolated", "torch_source": "image", "ami_id": "ami-0123456789abcdef0"},
        {"network": "isolated", "torch_source": "wheelhouse", "wheelhouse_path": "wheels"},
        {"capacity": "existing", "capacity_reservation_id": "cr-0123456789abcdef0"},
        {"capacity": "reservation"},
        {"capacity": "reservation", "placement": "none"},
        {"subnets": 2, "placement": "none", "availability_zone": "us-east-1b,us-east-1d"},
        {"proof_timeout_s": 2130},
        {
            "proof_timeout_s": 1230,
            "torch_source": "image",
            "ami_id": "ami-0123456789abcdef0",
        },
        {"deadline_s": 7200, "proof_timeout_s": 43200},
        {"vpc_id": "vpc-0123456789abcdef0", "vpc_cidr": "not used"},
    ],
)
def test_what_works_on_aws_is_allowed(context: Dict[str, Any]) -> None:
    """The checks refuse nothing that works."""
    assert problems(context) == ()


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("c7i.xlarge", Architecture.X86_64),
        ("g5.xlarge", Architecture.X86_64),
        ("g4dn.xlarge", Architecture.X86_64),
        ("p4de.24xlarge", Architecture.X86_64),
        ("u-6tb1.56xlarge", Architecture.X86_64),
        ("c7gn.xlarge", Architecture.ARM64),
        ("t4g.small", Architecture.ARM64),
        ("x2gd.large", Architecture.ARM64),
        ("hpc7g.4xlarge", Architecture.ARM64),
        ("im4gn.large", Architecture.ARM64),
        ("g5g.xlarge", Architecture.ARM64),
        ("a1.large", Architecture.ARM64),
        ("p6e-gb200.36xlarge", Architecture.ARM64),
    ],
)
def test_the_architecture_follows_the_instance_type(instance_type: str, expected: Architecture) -> None:
    """A `g` behind the generation's digit is Graviton; one before it is a GPU."""
    spec = ClusterSpec.from_context({"instance_type": instance_type, "placement": "none"})
    assert spec.architecture is expected


def test_needed_ports_are_the_store_and_the_ephemeral_range() -> None:
    """`all` needs the kernel's range, `pinned` the pinned one."""
    assert str(ClusterSpec().needed_ports) == "29500,32768-60999"
    assert str(ClusterSpec.from_context({"port_profile": "pinned"}).needed_ports) == "29500,50000-50999"


def test_a_master_port_within_the_ephemeral_range_is_noted() -> None:
    """It is allowed, and the note says what can happen and what prevents it."""
    (note,) = ClusterSpec.from_context({"master_port": 40000}).notes
    assert note == (
        "cluster.master_port: 40000 lies in the nodes' ephemeral range 32768-60999, so the kernel may "
        "give it to "
        "another socket first; reserve it with net.ipv4.ip_local_reserved_ports or take one outside"
    )


def test_an_efa_needs_a_type_that_only_the_account_can_name() -> None:
    """Nothing here knows the types; the note says how to list them."""
    (note,) = ClusterSpec.from_context({"port_profile": "efa"}).notes
    assert note == (
        "cluster.instance_type: c7i.xlarge must support EFA, which is not known before the account is asked; "
        "the types that do: aws ec2 describe-instance-types --filters "
        "Name=network-info.efa-supported,Values=true --query InstanceTypes[].InstanceType"
    )


def test_a_vpc_over_dockers_bridge_is_noted() -> None:
    """172.17.0.0/16 is Docker's own."""
    (note,) = ClusterSpec.from_context({"vpc_cidr": "172.17.0.0/16"}).notes
    assert note.startswith("cluster.vpc_cidr: 172.17.0.0/16 overlaps Docker's bridge")


def test_the_fingerprint_changes_with_everything_that_is_proven_and_nothing_else() -> None:
    """A change of a threshold or of retention needs no new proof; every other change does."""
    spec = ClusterSpec()
    unproven = set()
    for item in dataclasses.fields(ClusterSpec):
        value = getattr(spec, item.name)
        changed: Any = 77
        if isinstance(value, (str, PortRange)):
            changed = "changed" if isinstance(value, str) else PortRange(1, 2)
        if dataclasses.replace(spec, **{item.name: changed}).proof_fingerprint() == spec.proof_fingerprint():
            unproven.add(item.name)
    assert unproven == {
        "retention_days",
        "flow_logs",
        "alarm_broken_pairs",
        "alarm_round_trip_ms",
        "alarm_silent_checks",
        "audit_interval_min",
    }
