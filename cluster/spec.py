"""The specification of a cluster: every setting, its default and its allowed values.

The `cluster` object in cdk.json's context is read here and nowhere else, and this is the
only place that holds defaults. Reading collects every problem before it fails, so that
one run shows everything there is to mend.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import typing
from dataclasses import dataclass, field, fields
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from cluster.instance_types import EFA_TYPES_COMMAND, default_architecture
from cluster.ports import DEFAULT_EPHEMERAL_PORTS, PortRange, PortSet
from cluster.settings import (
    Architecture,
    Capacity,
    NetworkKind,
    OperatingSystem,
    Placement,
    PortProfile,
    TorchSource,
    about,
    check,
    convert,
    matching,
    one_of,
    plain,
    shown,
    within,
)
from cluster.spec_checks import cross_check, notes
from cluster.spec_context import CONTEXT_KEY, gather, overrides_of, strays

__all__ = [
    "CONTEXT_KEY",
    "DEFAULT_EPHEMERAL_PORTS",
    "Architecture",
    "Capacity",
    "ClusterSpec",
    "NetworkKind",
    "OperatingSystem",
    "Placement",
    "PortProfile",
    "SpecError",
    "TorchSource",
]

ZONE = r"[a-z]{2}(-[a-z]+)+-[0-9]+([a-z]|-[a-z0-9-]*[a-z0-9])"
"""Of a region (us-east-1a) or near one (us-west-2-lax-1a); a region's own name is none."""

LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
"""What CloudWatch Logs accepts (its list goes on; evidence of a proof is not kept longer)."""


class SpecError(ValueError):
    """The `cluster` context is not usable; the text has one line a problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems: Tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class ClusterSpec:
    """What the cluster is to be. Build it with `from_context`, which validates."""

    name: str = field(
        default="fullmesh",
        metadata=matching(
            r"(?!.*-evidence$)[a-z][a-z0-9-]{0,38}[a-z0-9]",
            "2-40 lower-case letters, digits and hyphens, beginning with a letter and not ending in "
            "-evidence, which another cluster's stack for its evidence does",
            "name of the cluster: stack name and value of the tag fullmesh:cluster",
        ),
    )
    nodes: int = field(default=4, metadata=within(2, 1000, "instances; every ordered pair of them is proven"))
    instance_type: str = field(
        default="c7i.xlarge",
        metadata=matching(
            r"[a-z][a-z0-9-]*\.[a-z0-9-]+",
            "FAMILY.SIZE as EC2 spells it, e.g. c7i.xlarge",
            "EC2 instance type, the same for every node",
        ),
    )
    architecture: Architecture = field(
        default=Architecture.X86_64, metadata=about("CPU; left out, the instance type decides")
    )
    operating_system: OperatingSystem = field(
        default=OperatingSystem.AL2023,
        metadata=about("image family; tells the user data which one ami_id is"),
    )
    ami_id: str = field(
        default="",
        metadata=matching(
            r"(ami-[0-9a-f]{8,17})?", "ami-... or ''", "image; blank = looked up once and pinned"
        ),
    )

    torch_source: TorchSource = field(
        default=TorchSource.INDEX, metadata=about("where nodes take torch from")
    )
    torch_version: str = field(
        default="2.13.0",
        metadata=matching(r"\d+\.\d+(\.\d+)?", "a release such as 2.13.0", "torch release to install"),
    )
    torch_index_url: str = field(
        default="https://download.pytorch.org/whl/cpu",
        metadata=matching(
            r"https?://[a-zA-Z0-9.-]+(:[0-9]{1,5})?(/[a-zA-Z0-9._~/%+-]*)?",
            "an http or https URL of letters, digits and . - _ ~ / % + :, without a password (the template "
            "is no place for one)",
            "pip index for source `index`; the CPU one, as plain pip brings gigabytes of CUDA",
        ),
    )
    wheelhouse_path: str = field(
        default="",
        metadata=matching(
            r"[^\x00-\x1f\x7f]*",
            "a path without control characters",
            "local folder of wheels to ship, for source `wheelhouse`",
        ),
    )

    network: NetworkKind = field(
        default=NetworkKind.PUBLIC, metadata=about("how nodes reach AWS; nobody reaches them")
    )
    vpc_id: str = field(
        default="",
        metadata=matching(r"(vpc-[0-9a-f]{8,17})?", "vpc-... or ''", "VPC to use; blank = make one"),
    )
    vpc_cidr: str = field(default="10.20.0.0/16", metadata=about("address range of the VPC that is made"))
    availability_zone: str = field(
        default="",
        metadata=matching(
            rf"({ZONE}(,{ZONE})?)?",
            "a zone name such as eu-central-1a, two with a comma between, or ''",
            "zone of each subnet; blank = the account's first ones",
        ),
    )
    subnets: int = field(default=1, metadata=within(1, 2, "subnets, each in a zone of its own"))

    master_port: int = field(default=29500, metadata=within(1024, 65535, "port of torch's store on rank 0"))
    port_profile: PortProfile = field(
        default=PortProfile.ALL,
        metadata=about(
            "which ports members open to each other; `efa` also makes the interface an EFA, which the "
            f"instance type must support: {EFA_TYPES_COMMAND}"
        ),
    )
    pinned_ports: PortRange = field(
        default=PortRange(50000, 50999),
        metadata=within(1024, 65535, "profile `pinned`: the range Gloo's listeners are held to"),
    )

    placement: Placement = field(default=Placement.CLUSTER, metadata=about("placement group strategy"))
    capacity: Capacity = field(default=Capacity.NONE, metadata=about("how capacity is made sure of"))
    capacity_reservation_id: str = field(
        default="",
        metadata=matching(
            r"(cr-[0-9a-f]{8,17})?", "cr-... or ''", "reservation for capacity `existing` or `block`"
        ),
    )
    volume_gib: int = field(default=30, metadata=within(8, 16384, "encrypted gp3 root volume, GiB"))
    conntrack_idle_timeout_s: int = field(
        default=432_000,
        metadata=within(
            60,
            432_000,
            "idle time-out of tracked TCP: Gloo sends no keepalive, and Nitro v6 forgets after 350 s",
        ),
    )

    proof_timeout_s: int = field(
        default=2700,
        metadata=within(
            60, 43_200, "wait condition: terminate, launch, install torch and prove; a fault is told at once"
        ),
    )
    deadline_s: int = field(
        default=300, metadata=within(10, 7200, "from a probe's start to judging with the rows there are")
    )
    collective_mib: int = field(default=64, metadata=within(1, 4096, "size of the measured all_reduce, MiB"))
    attempt: int = field(
        default=1, metadata=within(1, 1_000_000, "raise it to prove an unchanged cluster again")
    )

    retention_days: int = field(
        default=7, metadata=one_of(LOG_RETENTION_DAYS, "how long rows and logs are kept", proven=False)
    )
    flow_logs: bool = field(default=True, metadata=about("VPC flow logs of rejected traffic", proven=False))
    check_interval_min: int = field(
        default=5,
        metadata=within(1, 60, "minutes between checks of a standing mesh; nodes learn it at their boot"),
    )
    alarm_broken_pairs: int = field(
        default=0, metadata=within(0, 999_000, "alarm above this many broken ordered pairs", proven=False)
    )
    alarm_round_trip_ms: float = field(
        default=10.0,
        metadata=within(
            0.01,
            10_000,
            "alarm above this p99 round-trip time, ms; one zone is well below 1 ms",
            proven=False,
        ),
    )
    alarm_silent_checks: int = field(
        default=3, metadata=within(1, 100, "alarm after this many checks without a verdict", proven=False)
    )
    audit_interval_min: int = field(
        default=15,
        metadata=within(
            0, 480, "minutes between audits of what stands against the stack; 0 = none", proven=False
        ),
    )

    @classmethod
    def from_context(cls, context: Any = None, overrides: Optional[Mapping[str, Any]] = None) -> ClusterSpec:
        """Read the `cluster` object of the context, with single values overridden.

        context: the object, its JSON text (as `-c cluster='{...}'` gives it), or None.
        overrides: {"cluster.nodes": "8"} or {"nodes": "8"}; text is turned into the
        setting's type.

        Raises:
            SpecError: names every unknown key, every value out of its range and every
                combination that AWS or Gloo would refuse.
        """
        given, problems = gather(context, overrides or {})
        settings = {item.name: item for item in fields(cls)}
        kinds = typing.get_type_hints(cls)
        values: Dict[str, Any] = {}
        for key, raw in given.items():
            if key not in settings:
                close = difflib.get_close_matches(key, settings, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known settings: {', '.join(settings)}"
                name = key if key.isidentifier() and len(key) < 60 else shown(key)
                problems.append(f"{CONTEXT_KEY}.{name}: is not a setting; {hint}")
                continue
            try:
                value = convert(kinds[key], raw)
                check(value, settings[key].metadata)
                values[key] = value
            except ValueError as error:
                way = f"set it in cdk.json or with -c {CONTEXT_KEY}.{key}=..."
                problems.append(f"{CONTEXT_KEY}.{key}: {error}; {way}")
        if "architecture" not in given and "instance_type" in values:
            values["architecture"] = default_architecture(values["instance_type"])
        spec = cls(**values)
        refused = {key for key in given if key in settings and key not in values}
        # A combination with a refused value would be judged by the default in its place.
        problems += [str(clash) for clash in cross_check(spec) if not refused.intersection(clash.settings)]
        if problems:
            raise SpecError(problems)
        return spec

    @classmethod
    def from_cdk_context(cls, context: Mapping[str, Any]) -> ClusterSpec:
        """Read the whole context of an app: the `cluster` object, and every `-c cluster.KEY=VALUE`.

        Raises:
            SpecError: as `from_context`, and for keys that only look like settings, which would
                otherwise be passed over in silence.
        """
        looked_alike = strays(context, {item.name for item in fields(cls)})
        if looked_alike:
            raise SpecError(looked_alike)
        return cls.from_context(context.get(CONTEXT_KEY), overrides_of(context))

    @property
    def zones(self) -> Tuple[str, ...]:
        """The zones that were named, in the order of the subnets; none = the account's first ones."""
        return tuple(self.availability_zone.split(",")) if self.availability_zone else ()

    @property
    def ephemeral_ports(self) -> PortRange:
        """The range that Gloo's listeners and outgoing connections come from."""
        return self.pinned_ports if self.port_profile is PortProfile.PINNED else DEFAULT_EPHEMERAL_PORTS

    @property
    def needed_ports(self) -> PortSet:
        """TCP ports every member must reach on every other member."""
        return PortSet.of([PortRange(self.master_port, self.master_port), self.ephemeral_ports])

    @property
    def notes(self) -> Tuple[str, ...]:
        """What is allowed but worth knowing, a line each."""
        return tuple(notes(self))

    def proof_fingerprint(self) -> str:
        """12 hex digits over every setting that the nodes prove; thresholds and retention stay out.

        The stacks add the hash of the probe and of the user data.
        """
        proven = {
            item.name: plain(getattr(self, item.name)) for item in fields(self) if item.metadata["proven"]
        }
        return hashlib.sha256(json.dumps(proven, sort_keys=True).encode()).hexdigest()[:12]
