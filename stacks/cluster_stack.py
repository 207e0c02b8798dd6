"""The cluster: network, group, fleet, proof and what shows them."""

from __future__ import annotations

import dataclasses
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cluster.keys import CLUSTER_TAG
from cluster.node_config import NodeConfig
from cluster.spec import ClusterSpec, PortProfile, TorchSource
from cluster.spec_times import install_limit_s
from stacks.evidence_stack import Evidence
from stacks.fleet import Fleet, NodeRole
from stacks.monitoring import Monitoring
from stacks.network import Network
from stacks.node_assets import NodeAssets, function_code
from stacks.scheduled_audit import ScheduledAudit, Statements
from stacks.security import MemberGroup
from stacks.user_data import render_user_data
from stacks.verdict import Handle, Referee, fingerprint

METRIC_NAMESPACE = "Fullmesh"


class ClusterStack(cdk.Stack):
    """Reaches CREATE_COMPLETE only when the nodes have proven the mesh."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        spec: ClusterSpec,
        image_id: str,
        evidence: Evidence,
        audit_reading: Statements,
        unsafe_rules: str = "",
        **stack: Any,
    ) -> None:
        super().__init__(scope, id_, **stack)
        bucket = evidence.bucket
        assets = NodeAssets(self, "NodeAssets", spec=spec)
        network = Network(
            self,
            "Network",
            spec=spec,
            flow_logs=evidence.flow_logs,
            functions=evidence.functions,
        )
        self.cidr = network.cidr
        members = MemberGroup(
            self,
            "Members",
            spec=spec,
            vpc_id=network.vpc_id,
            cidr=network.cidr,
            unsafe_rules=unsafe_rules,
        )
        role = NodeRole(
            self,
            "Role",
            evidence_bucket=bucket,
            verdict_log_group=evidence.verdicts,
            metric_namespace=METRIC_NAMESPACE,
            asset_objects=assets.objects,
        )

        config = node_config(spec, assets)
        run = fingerprint(
            spec=spec.proof_fingerprint(),
            image_id=image_id,
            unsafe_rules=unsafe_rules,
            assets=assets.digest,
            # With blanks for what only the deploy knows: those names differ between accounts, not in meaning.
            user_data=render_user_data(config, asset_bucket="", asset_key=""),
        )
        handle = Handle(self, "Verdict", run=run)
        config = dataclasses.replace(
            config,
            run=run,
            handle_url=handle.url,
            role_id=role.role_id,
            region=self.region,
            bucket=bucket,
            log_group=evidence.verdicts,
            asset_bucket=assets.tools.s3_bucket_name,
        )
        fleet = Fleet(
            self,
            "Fleet",
            spec=spec,
            image_id=image_id,
            user_data=render_user_data(
                config, asset_bucket=assets.tools.s3_bucket_name, asset_key=assets.tools.s3_object_key
            ),
            role=role,
            group_id=members.group_id,
            subnet_ids=network.subnet_ids,
            zone=network.zone,
            before=[*network.ready, *members.rules],
        )
        wait = handle.wait(timeout_s=spec.proof_timeout_s, before=fleet.before)

        code_asset = function_code(self)
        code = lambda_.CfnFunction.CodeProperty(
            s3_bucket=code_asset.s3_bucket_name, s3_key=code_asset.s3_object_key
        )
        Referee(
            self,
            "Referee",
            config=config,
            timeout_s=spec.proof_timeout_s,
            code=code,
            functions=evidence.functions,
        )
        if spec.audit_interval_min:
            ScheduledAudit(
                self,
                "Audit",
                interval_min=spec.audit_interval_min,
                metric_namespace=METRIC_NAMESPACE,
                evidence_bucket=bucket,
                functions=evidence.functions,
                code=code,
                reading=audit_reading,
            )
        monitoring = Monitoring(
            self,
            "Monitoring",
            spec=spec,
            run=run,
            metric_namespace=METRIC_NAMESPACE,
            verdicts=evidence.verdicts,
            functions=evidence.functions,
            evidence_bucket=bucket,
            code=code,
        )
        # Fn::GetAtt of a wait's Data is JSON text: docs.aws.amazon.com/AWSCloudFormation/latest/
        # TemplateReference/aws-resource-cloudformation-waitcondition.html shows it as an output; the
        # schema calls it an object. Where the evidence lies is worth an output of its own (W6001), and
        # a zone that somebody asked for by name is no oversight (W3010).
        ignored = ["E6101", "W6001", "W3010"]
        self.template_options.metadata = {"cfn-lint": {"config": {"ignore_checks": ignored}}}
        cdk.Validations.of(self).acknowledge(
            cdk.Acknowledgment(
                id="CloudFormation-Validate::F6101", reason="a wait condition's Data is JSON text"
            ),
            cdk.Acknowledgment(
                id="CloudFormation-Validate::W3010", reason="zones are fixed only where somebody named them"
            ),
        )
        self._outputs(
            Verdict=wait.data,
            Run=run,
            Evidence=cdk.Fn.join("", ["s3://", bucket, f"/rows/{run}/"]),
            Dashboard=monitoring.url,
            MemberGroupId=members.group_id,
            VpcId=network.vpc_id,
            GroupName=fleet.group.ref,
            OpenShell=(
                f"aws ssm start-session --region {self.region} --target "
                f"$(aws ec2 describe-instances --region {self.region} --filters "
                f"Name=tag:{CLUSTER_TAG},Values={spec.name} Name=instance-state-name,Values=running "
                "--query Reservations[0].Instances[0].InstanceId --output text)"
            ),
        )

    def _outputs(self, **values: str) -> None:
        for name, value in values.items():
            cdk.CfnOutput(self, f"Output{name}", value=value).override_logical_id(name)


def node_config(spec: ClusterSpec, assets: NodeAssets) -> NodeConfig:
    """What the specification alone decides; names and addresses of the deploy are blank."""
    return NodeConfig(
        cluster=spec.name,
        run="",
        nodes=spec.nodes,
        master_port=spec.master_port,
        region="",
        bucket="",
        role_id="",
        ephemeral_ports=spec.ephemeral_ports if spec.port_profile is PortProfile.PINNED else None,
        metric_namespace=METRIC_NAMESPACE,
        deadline_s=spec.deadline_s,
        install_limit_s=install_limit_s(spec.torch_source),
        check_interval_min=spec.check_interval_min,
        collective_bytes=spec.collective_mib * 1024 * 1024,
        torch_source=spec.torch_source.value,
        torch_requirement=f"torch=={spec.torch_version}",
        torch_index_url=spec.torch_index_url if spec.torch_source is TorchSource.INDEX else "",
        wheelhouse_key=assets.wheelhouse.s3_object_key if assets.wheelhouse else "",
    )
