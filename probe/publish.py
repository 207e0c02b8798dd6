"""What a verdict becomes on AWS: the signal, metrics, one log event. And the account's rules.

Nothing here changes a verdict: what could not be published comes back as text.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from cluster.node_config import NodeConfig
from cluster.snapshot import ClusterSnapshot
from diagnosis.render import signal_reason
from diagnosis.report import ConnectOutcome, Diagnosis, PairVerdict, Verdict
from probe.account import AccountReader
from probe.aws import signal
from probe.baseline import read_baselines
from probe.cloudwatch import Metric, put_log_event, put_metric_data
from probe.credentials import CredentialChain
from probe.transport import AwsError, RetryPolicy

# CloudWatch Logs takes 256 KiB in one event. A broken pair costs about 60 bytes.
MAX_BROKEN_PAIRS_IN_EVENT = 2000
LOG_STREAM = "verdicts"
# The verdict stands already: a service without a way to it must not hold the node up.
POLICY = RetryPolicy(total_s=8.0, timeout_s=3.0, attempts=4)


class RulesUnreadError(RuntimeError):
    """The account's rules cannot be read; says why, and which permission is missing."""


class AwsPublisher:
    """Speaks for one node of a deployed cluster."""

    def __init__(self, config: NodeConfig, credentials: CredentialChain) -> None:
        self._config = config
        self._credentials = credentials

    def read_rules(self, member_ids: Sequence[str]) -> Optional[ClusterSnapshot]:
        """The account's rules around these instances.

        Raises:
            RulesUnreadError: not even the instances can be read.
        """
        instances = [member for member in member_ids if member.startswith("i-")]
        if not instances:
            raise RulesUnreadError(f"no EC2 instance is among the {len(member_ids)} registered members")
        reader = AccountReader(region=self._config.region, credentials=self._credentials)
        try:
            snapshot = reader.describe_cluster_snapshot(instances, self._config.cluster)
        finally:
            reader.close()
        if snapshot is None:
            raise RulesUnreadError(reader.problems["instances"])
        return snapshot

    def read_baselines(self, instance_types: Sequence[str]) -> Mapping[str, float]:
        """Instance type -> guaranteed Gbit/s, as far as EC2 tells.

        Raises:
            AwsError, ValueError: EC2 refused, did not answer, or its answer does not read.
        """
        return read_baselines(self._config.region, instance_types, self._credentials)

    def signal(self, diagnosis: Diagnosis, evidence: str) -> Tuple[str, ...]:
        """Tell the wait condition; () when it was told or nobody waits, else why not."""
        if not self._config.handle_url:
            return ()
        passed = diagnosis.verdict is Verdict.PASS
        try:
            signal(
                handle_url=self._config.handle_url,
                status="SUCCESS" if passed else "FAILURE",
                reason=signal_reason(diagnosis, evidence),
                data=json.dumps(summary(diagnosis, evidence), separators=(",", ":")) if passed else "",
            )
        except AwsError as error:
            return (str(error),)
        return ()

    def publish(self, diagnosis: Diagnosis, run: str, *, alone: bool = False) -> Tuple[str, ...]:
        """Send metrics and the log event; what failed, as text.

        alone: it speaks for this node only, so it is no figure of the cluster and goes to the log.
        """
        config = self._config
        work: List[Callable[[], None]] = []
        if config.metric_namespace and not alone:
            work.append(
                lambda: put_metric_data(
                    namespace=config.metric_namespace,
                    metrics=metrics(diagnosis, config.cluster, config.nodes),
                    region=config.region,
                    credentials=self._credentials,
                    policy=POLICY,
                )
            )
        if config.log_group:
            work.append(
                lambda: put_log_event(
                    log_group=config.log_group,
                    log_stream=LOG_STREAM,
                    message=json.dumps(log_event(diagnosis, run), separators=(",", ":")),
                    region=config.region,
                    at_s=time.time(),
                    credentials=self._credentials,
                    policy=POLICY,
                )
            )
        # Side by side: without a way to CloudWatch the node waits once, not twice.
        with ThreadPoolExecutor(max_workers=2) as pool:
            return tuple(text for text in pool.map(_attempt, work) if text)


def _attempt(work: Callable[[], None]) -> str:
    """Blank, or what AWS refused."""
    try:
        work()
    except AwsError as error:
        return str(error)
    return ""


def is_broken(pair: PairVerdict) -> bool:
    """Whether a probe of the pair was made and did not get through."""
    return any(outcome not in (None, ConnectOutcome.CONNECTED) for outcome in pair.outcomes.values())


def summary(diagnosis: Diagnosis, evidence: str) -> Dict[str, Any]:
    """The stack's output on success: small, O(1) in the number of nodes."""
    times = sorted(pair.round_trip_s for pair in diagnosis.pairs if pair.round_trip_s is not None)
    collective = diagnosis.collective
    return {
        "verdict": diagnosis.verdict.value,
        "nodes": len(diagnosis.nodes),
        "pairs": len(diagnosis.pairs),
        "round_trip_ms_p50": round(times[len(times) // 2] * 1000, 3) if times else None,
        "round_trip_ms_max": round(times[-1] * 1000, 3) if times else None,
        "all_reduce_busbw_gbit_per_s": collective.busbw_gbit_per_s if collective else None,
        "evidence": evidence,
    }


def metrics(diagnosis: Diagnosis, cluster: str, nodes_expected: int) -> Tuple[Metric, ...]:
    """The run's metrics; none of them grows in number with the cluster."""
    dimensions = {"Cluster": cluster}

    def one(name: str, values: Sequence[float], unit: str = "Count") -> Metric:
        return Metric(name=name, values=values, unit=unit, dimensions=dimensions)

    reported = sum(node.verdict is not Verdict.UNKNOWN for node in diagnosis.nodes)
    found = [one("NodesReported", [reported]), one("NodesExpected", [nodes_expected])]
    if diagnosis.verdict in (Verdict.PASS, Verdict.FAIL):
        found.append(one("MeshVerdict", [float(diagnosis.verdict is Verdict.PASS)], "None"))
    if diagnosis.pairs:
        found.append(one("BrokenPairs", [sum(map(is_broken, diagnosis.pairs))]))
    times = [pair.round_trip_s * 1000 for pair in diagnosis.pairs if pair.round_trip_s is not None]
    if times:
        found.append(one("RoundTripTime", times, "Milliseconds"))
    collective = diagnosis.collective
    if collective and collective.busbw_gbit_per_s is not None:
        found.append(one("AllReduceBusBandwidth", [collective.busbw_gbit_per_s], "Gigabits/Second"))
    return tuple(found)


def log_event(diagnosis: Diagnosis, run: str) -> Dict[str, Any]:
    """The whole matrix of a run as one structured event; only broken pairs are listed."""
    broken = [pair for pair in diagnosis.pairs if is_broken(pair)]
    return {
        "kind": "verdict",
        "run": run,
        "verdict": diagnosis.verdict.value,
        "causes": [
            {"id": item.id, "subject": item.subject, "summary": item.summary} for item in diagnosis.causes
        ],
        "pairs": len(diagnosis.pairs),
        "broken_pairs": len(broken),
        "broken": [
            {
                "source": pair.source,
                "destination": pair.destination,
                "outcomes": {port: value.value for port, value in pair.outcomes.items() if value},
            }
            for pair in broken[:MAX_BROKEN_PAIRS_IN_EVENT]
        ],
        "nodes": [
            {"rank": node.rank, "name": node.name, "address": node.address, "verdict": node.verdict.value}
            for node in diagnosis.nodes
        ],
        "unanswered": list(diagnosis.unanswered[:20]),
        "timings_s": dict(diagnosis.timings_s),
    }
