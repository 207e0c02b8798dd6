"""Causes of the groups "the node itself", "configuration that does nothing" and "no fault"."""

from __future__ import annotations

from diagnosis.catalogue.cause import ABSENCE_ECHOES, LIVE, LOG, MESH_ECHOES, STATIC, Cause, Group

_BOOT_LOG = "sudo tail -n 100 /var/log/cloud-init-output.log"

CAUSES = (
    Cause(
        id="launch-failed",
        group=Group.NODE,
        title="EC2 did not launch an instance",
        meaning="Capacity, a quota, a key's grant or the zone: the auto scaling group's activity says which.",
        decided_by="the scaling activity's reason",
        seen_in=(STATIC,),
        remediation="Act on the reason that the scaling activity gives.",
        commands=(
            "aws autoscaling describe-scaling-activities --auto-scaling-group-name {auto_scaling_group} "
            "--max-items 5 --query 'Activities[].[StatusCode,StatusMessage]'",
        ),
        explains=ABSENCE_ECHOES,
    ),
    Cause(
        id="bootstrap-failed",
        group=Group.NODE,
        title="a step of the node's start-up failed",
        meaning="User data ended before the probe (or the collective) could run.",
        decided_by="the step, its exit status and its last lines",
        seen_in=(LIVE,),
        remediation="Mend the step that failed; its last lines are the evidence.",
        commands=(
            "aws ec2 get-console-output --instance-id {instance_id} --latest --output text",
            _BOOT_LOG,
        ),
        explains=(*ABSENCE_ECHOES, *MESH_ECHOES),
    ),
    Cause(
        id="storage-unreachable",
        group=Group.NODE,
        title="the node cannot reach the bucket",
        meaning="No way out of the subnet, an endpoint policy, or a permission keeps the node from reading "
        "or writing the rows.",
        decided_by="no row though the instance runs; the error on the node",
        seen_in=(LIVE,),
        remediation="Give the subnet an S3 gateway endpoint (or another way out) and the role its "
        "permission.",
        commands=(
            "aws ec2 describe-vpc-endpoints --filters Name=vpc-id,Values={vpc_id} --query "
            "'VpcEndpoints[].[ServiceName,State,RouteTableIds]'",
            "aws s3api list-objects-v2 --bucket {bucket} --prefix rows/ --max-items 1",
        ),
        explains=(*ABSENCE_ECHOES, *MESH_ECHOES, "bootstrap-failed", "publish-failed"),
    ),
    Cause(
        id="publish-failed",
        group=Group.NODE,
        title="metrics or logs could not be written",
        meaning="The verdict stands; CloudWatch does not show it.",
        decided_by="the error of the call",
        seen_in=(LIVE,),
        remediation="Give the node's role the permission, and the subnet a way to the service.",
        commands=("aws sts get-caller-identity",),
        decides_verdict=False,
    ),
    Cause(
        id="collective-wrong-result",
        group=Group.NODE,
        title="an all_reduce returned wrong numbers",
        meaning="The answer of the collective is known beforehand, and this rank got another.",
        decided_by="ranks and values",
        seen_in=(LIVE,),
        remediation="Take the node out of the cluster and run the collective again without it.",
        commands=("aws ec2 terminate-instances --instance-ids {instance_id}",),
    ),
    Cause(
        id="env-no-effect",
        group=Group.CONFIGURATION,
        title="a variable is set in vain",
        meaning="The torch at hand does not read it (no release does, or a newer one), only something else "
        "than Gloo reads it, or its value is none that counts. What it promises has another mechanism.",
        decided_by="the name, looked for in the libraries of the installed torch; else a table of releases",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Remove the variable and use the mechanism that works.",
        commands=("unset {name}",),
        decides_verdict=False,
    ),
    Cause(
        id="transport-unsupported",
        group=Group.CONFIGURATION,
        title="GLOO_DEVICE_TRANSPORT asks for a transport this build lacks",
        meaning="The official CPU wheel for Linux has TCP only, the CUDA wheels TCP and TCP_TLS.",
        decided_by="unsupported gloo device",
        seen_in=(LIVE, LOG),
        remediation="Remove the variable.",
        commands=("unset GLOO_DEVICE_TRANSPORT",),
        explains=("peer-missing", "peer-not-in-collective"),
    ),
    Cause(
        id="benign-ipv6-warning",
        group=Group.NO_FAULT,
        title="IPv6 lookup lines without consequence",
        meaning="The store tries IPv6 first; errno 97 or a lookup line with a later success is no failure.",
        decided_by="a later success, or no fatal line",
        seen_in=(LOG,),
        remediation="Nothing needs to be done.",
        decides_verdict=False,
    ),
    Cause(
        id="benign-retry",
        group=Group.NO_FAULT,
        title="early retries while peers start",
        meaning="Refused, reset or lookup lines before the peers were up, with a success shown later.",
        decided_by="the later success; without one the text does not decide",
        seen_in=(LOG,),
        remediation="Nothing needs to be done.",
        decides_verdict=False,
    ),
    Cause(
        id="benign-shutdown",
        group=Group.NO_FAULT,
        title="connections closed as a finished job ends",
        meaning="Processes of a job leave one after the other: the last ones lose the store, and agents "
        "their rendezvous.",
        decided_by="the job's own success before these lines, and no exception",
        seen_in=(LOG,),
        remediation="Nothing needs to be done; dist.destroy_process_group() at the end keeps it quiet.",
        decides_verdict=False,
    ),
    Cause(
        id="benign-success",
        group=Group.NO_FAULT,
        title="the job worked",
        meaning="The text shows the job at work or finished, and nothing in it failed.",
        decided_by="lines that show work, and no line that shows a failure",
        seen_in=(LOG,),
        remediation="Nothing needs to be done.",
        decides_verdict=False,
    ),
    Cause(
        id="undetermined",
        group=Group.NO_FAULT,
        title="the evidence does not decide",
        meaning="Several causes fit what was seen; they are listed in order, with the command that decides.",
        decided_by="nothing: that is the point",
        seen_in=(LOG, LIVE),
        remediation="Run the deciding command.",
        commands=("fullmesh check --json",),
        decides_verdict=False,
    ),
)
