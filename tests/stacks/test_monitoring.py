"""The dashboard and the alarms."""

from __future__ import annotations

import json

import pytest

from audit import scheduled
from tests.stacks.synthesis import Json, Synthesis, synthesise


def alarms(found: Synthesis) -> dict[str, Json]:
    """Description without the cluster's name -> properties."""
    return {
        a["Properties"]["AlarmDescription"].partition(": ")[2]: a["Properties"]
        for a in found.of_type("AWS::CloudWatch::Alarm").values()
    }


def test_a_broken_mesh_raises_an_alarm_on_the_first_verdict(public: Synthesis) -> None:
    """A FAIL, or one broken pair; without data the state stays as it is."""
    failed = alarms(public)["the last verdict on the mesh is FAIL"]
    broken = alarms(public)["more than 0 ordered pairs cannot open a new connection"]
    keys = (
        "MetricName",
        "Statistic",
        "ComparisonOperator",
        "Threshold",
        "EvaluationPeriods",
        "TreatMissingData",
    )
    assert [tuple(a[k] for k in keys) for a in (failed, broken)] == [
        ("MeshVerdict", "Minimum", "LessThanThreshold", 1, 1, "ignore"),
        ("BrokenPairs", "Maximum", "GreaterThanThreshold", 0, 1, "ignore"),
    ]


def test_a_silent_mesh_raises_an_alarm(public: Synthesis) -> None:
    """No data is no proof: missing verdicts count as a breach."""
    silent = alarms(public)["3 checks without a verdict"]
    assert (silent["MetricName"], silent["Statistic"], silent["Period"]) == (
        "MeshVerdict",
        "SampleCount",
        300,
    )
    assert (silent["EvaluationPeriods"], silent["TreatMissingData"]) == (3, "breaching")


AUDIT_METRICS = (scheduled.DRIFTED, scheduled.BREAKING)
NOT_PART_OF_KNOWN_GOOD = {
    "p99 round-trip time above 10.0 ms",
    "what stands differs from the stack",
    "3 audits that did not see everything, or did not run",
}


def test_known_good_is_the_absence_of_what_breaks_the_mesh(public: Synthesis) -> None:
    """Failed, broken, silent, or drifted so that new connections fail: each alone raises the composite."""
    rule = json.dumps(public.one("AWS::CloudWatch::CompositeAlarm")["AlarmRule"])
    named = [a for a in public.of_type("AWS::CloudWatch::Alarm") if a in rule]
    descriptions = {
        public.cluster["Resources"][a]["Properties"]["AlarmDescription"].partition(": ")[2] for a in named
    }
    assert descriptions == set(alarms(public)) - NOT_PART_OF_KNOWN_GOOD
    assert rule.count(" OR ") == 3


def test_every_metric_carries_the_cluster_and_nothing_else(public: Synthesis) -> None:
    """Metrics are O(1) a run: one dimension, the names that the nodes send."""
    for alarm in alarms(public).values():
        assert alarm["Dimensions"] == [{"Name": "Cluster", "Value": "fullmesh"}]
        assert alarm["Namespace"] == "Fullmesh"
    from diagnosis.report import Diagnosis, PairVerdict, Verdict  # noqa: PLC0415
    from probe.publish import metrics  # noqa: PLC0415

    pair = PairVerdict(source=0, destination=1, outcomes={}, round_trip_s=0.001)
    sent = {m.name for m in metrics(Diagnosis(verdict=Verdict.PASS, pairs=(pair,)), "fullmesh", 2)}
    shown = {name for widget in body(public) for name in _metric_names(widget)}
    assert shown == sent | {"AllReduceBusBandwidth", *AUDIT_METRICS}


def test_bandwidth_is_shown_as_of_the_last_proof_and_raises_no_alarm(public: Synthesis) -> None:
    """Only a deploy measures it: an alarm would stay as the deploy left it."""
    (title,) = (
        w["properties"]["title"] for w in body(public) if "AllReduceBusBandwidth" in set(_metric_names(w))
    )
    assert title == "all_reduce bus bandwidth at the last proof (Gbit/s)"
    assert "AllReduceBusBandwidth" not in {a["MetricName"] for a in alarms(public).values()}


@pytest.mark.parametrize("minutes", [1, 60])
def test_alarms_and_nodes_follow_the_interval_of_the_checks(minutes: int) -> None:
    """A shorter alarm would miss checks, and nodes that check at another pace make it ring or sleep."""
    found = synthesise(cluster__check_interval_min=minutes)
    of_the_mesh = [a for a in alarms(found).values() if a["MetricName"] not in AUDIT_METRICS]
    assert {alarm["Period"] for alarm in of_the_mesh} == {60 * minutes}
    assert f'"check_interval_min": {minutes}' in json.dumps(found.launch_data["UserData"]).replace('\\"', '"')


def test_the_matrix_is_drawn_by_a_function_that_only_reads(public: Synthesis) -> None:
    """The custom widget calls the function, which may list and read rows and nothing else."""
    (widget,) = (w for w in body(public) if w["type"] == "custom")
    (function,) = (
        f["Properties"]
        for f in public.of_type("AWS::Lambda::Function").values()
        if f["Properties"]["Handler"] == "stacks.runtime.widget.handler"
    )
    role = public.cluster["Resources"][function["Role"]["Fn::GetAtt"][0]]["Properties"]
    (policy,) = role["Policies"]
    assert [s["Action"] for s in policy["PolicyDocument"]["Statement"]] == [
        ["logs:CreateLogStream", "logs:PutLogEvents"],
        "s3:ListBucket",
        "s3:GetObject",
    ]
    assert widget["properties"]["endpoint"] == "<token>"


def test_alarms_that_cloudwatch_would_refuse_are_refused_here() -> None:
    """An alarm over periods below an hour looks back a day at most; the error says what fits."""
    with pytest.raises(ValueError, match=r"cluster\.alarm_silent_checks: 100 .* set it to 28 or less"):
        synthesise(cluster__check_interval_min=50, cluster__alarm_silent_checks=100)


def body(found: Synthesis) -> list[Json]:
    """The dashboard's widgets, with references as `<token>`."""
    value = found.one("AWS::CloudWatch::Dashboard")["DashboardBody"]
    parts = value["Fn::Join"][1] if isinstance(value, dict) else [value]
    widgets: list[Json] = json.loads("".join(p if isinstance(p, str) else "<token>" for p in parts))[
        "widgets"
    ]
    return widgets


def _metric_names(widget: Json) -> list[str]:
    return [metric[1] for metric in widget["properties"].get("metrics", [])]


def test_an_audit_that_runs_but_does_not_see_everything_raises_an_alarm(public: Synthesis) -> None:
    """Gaps send no metric; three audits without one are a breach, drift is one at once."""
    found = alarms(public)
    silent = found["3 audits that did not see everything, or did not run"]
    assert (silent["Period"], silent["EvaluationPeriods"], silent["TreatMissingData"]) == (
        900,
        3,
        "breaching",
    )
    for description, metric in (
        ("what stands differs from the stack", scheduled.DRIFTED),
        ("what stands differs from the stack, and new connections fail by it", scheduled.BREAKING),
    ):
        alarm = found[description]
        assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == (metric, "Maximum", 0)
        assert (alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (1, "ignore")
