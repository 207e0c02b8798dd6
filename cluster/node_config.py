"""What a node is told about its cluster: one JSON document, written by the stack's user
data to `/etc/fullmesh/config.json` and read by the probe and by bootstrap.sh.

Every value is a string or a number that CloudFormation can fill in; a blank string
means "this cluster has none".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from cluster.ports import PortRange

CONFIG_PATH = "/etc/fullmesh/config.json"
CLUSTER_ENV_PATH = "/etc/fullmesh/cluster.env"
HOSTFILE_PATH = "/etc/fullmesh/hostfile"


@dataclass(frozen=True)
class NodeConfig:
    """The facts a node cannot find out by itself.

    cluster: the cluster's name (tag `fullmesh:cluster`).
    run: id of what is being proven (hash; part of the wait condition's logical id).
    nodes: how many members must meet.
    master_port: port of torch's store on rank 0.
    ephemeral_ports: the range Gloo's listeners come from; None = the node's own
        net.ipv4.ip_local_port_range (profile `pinned` sets it on the node).
    region, bucket, role_id: rows go to s3://BUCKET/rows/RUN/ROLE_ID:INSTANCE_ID/...;
        IAM lets a node write below its own aws:userid (= ROLE_ID:INSTANCE_ID) only.
    handle_url: pre-signed URL of the wait condition's handle; blank = nobody waits.
    log_group, metric_namespace: CloudWatch; blank = do not publish there.
    deadline_s: seconds from the node's start of the probe to the judgement with
        whatever rows stand by then.
    collective_bytes: size of the measured all_reduce.
    install_limit_s: the longest that step `torch` may take in all. Members whose torch is there
        already wait for the slowest one's that long before the collective.
    check_interval_min: minutes between checks of the standing mesh, the same on every member.
    torch_source: "index", "wheelhouse" or "image".
    torch_requirement: e.g. "torch==2.13.0"; torch_index_url: pip index for "index".
    wheelhouse_key: S3 key in asset_bucket of the wheelhouse archive for "wheelhouse".
    """

    cluster: str
    run: str
    nodes: int
    master_port: int
    region: str
    bucket: str
    role_id: str
    ephemeral_ports: Optional[PortRange] = None
    handle_url: str = ""
    log_group: str = ""
    metric_namespace: str = ""
    deadline_s: int = 300
    collective_bytes: int = 64 * 1024 * 1024
    torch_source: str = "index"
    torch_requirement: str = ""
    torch_index_url: str = ""
    asset_bucket: str = ""
    wheelhouse_key: str = ""
    install_limit_s: int = 900
    check_interval_min: int = 5
