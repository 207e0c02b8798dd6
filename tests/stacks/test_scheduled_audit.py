"""The audit's function, what calls it, and what it may do."""

from __future__ import annotations

from tests.stacks.synthesis import Json, Synthesis, synthesise

HANDLER = "audit.scheduled.handler"


def functions(found: Synthesis) -> list[Json]:
    return [
        item["Properties"]
        for item in found.of_type("AWS::Lambda::Function").values()
        if item["Properties"]["Handler"] == HANDLER
    ]


def rules(found: Synthesis) -> list[Json]:
    every = (item["Properties"] for item in found.of_type("AWS::Events::Rule").values())
    return [item for item in every if item["Targets"][0]["Id"] == "audit"]


def test_one_setting_turns_it_off() -> None:
    """cluster.audit_interval_min=0 leaves no function, no rule, no alarm and no widget of it."""
    off = synthesise(cluster__audit_interval_min=0)
    assert (functions(off), rules(off)) == ([], [])
    descriptions = [
        item["Properties"]["AlarmDescription"] for item in off.of_type("AWS::CloudWatch::Alarm").values()
    ]
    assert not [text for text in descriptions if "stack" in text or "audits" in text]
    assert "DriftedRules" not in str(off.one("AWS::CloudWatch::Dashboard"))


def test_it_is_called_by_a_schedule_and_by_changes_of_ec2(public: Synthesis) -> None:
    """Every interval; and at once where CloudTrail tells EventBridge of a call that changes something."""
    by_kind = {("ScheduleExpression" in item): item for item in rules(public)}
    assert by_kind[True]["ScheduleExpression"] == "rate(15 minutes)"
    pattern = by_kind[False]["EventPattern"]
    assert (pattern["source"], pattern["detail-type"]) == (["aws.ec2"], ["AWS API Call via CloudTrail"])
    names = pattern["detail"]["eventName"]
    prefixes = tuple(item["prefix"] for item in names if isinstance(item, dict))
    for call in (
        "AuthorizeSecurityGroupIngress", "RevokeSecurityGroupEgress", "ModifySecurityGroupRules",
        "CreateNetworkAclEntry", "ReplaceNetworkAclAssociation", "DeleteRoute", "ModifyVpcAttribute",
        "ModifyNetworkInterfaceAttribute", "ModifyInstanceMetadataOptions", "ModifyInstancePlacement",
        "CancelCapacityReservation", "TerminateInstances", "DeleteFlowLogs",
    ):  # fmt: skip
        assert call in names or call.startswith(prefixes), call
    assert not [name for name in (*names, *prefixes) if str(name).startswith(("Describe", "Get", "List"))]


def test_the_schedule_speaks_the_singular() -> None:
    """EventBridge refuses rate(1 minutes)."""
    often = synthesise(cluster__audit_interval_min=1)
    expressions = [item["ScheduleExpression"] for item in rules(often) if "ScheduleExpression" in item]
    assert expressions == ["rate(1 minute)"]


def test_it_may_read_and_send_metrics_and_nothing_else(public: Synthesis) -> None:
    """No action of its role changes anything but metrics of its namespace and its own log."""
    (function,) = functions(public)
    role = public.cluster["Resources"][function["Role"]["Fn::GetAtt"][0]]["Properties"]
    actions = {
        action
        for policy in role["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    writing = {name for name in actions if not name.split(":")[1].startswith(("Describe", "Get", "List"))}
    assert writing == {"cloudwatch:PutMetricData", "logs:CreateLogStream", "logs:PutLogEvents"}
