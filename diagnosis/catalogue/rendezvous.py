"""Causes of the group "rendezvous": the ranks do not meet at the store."""

from __future__ import annotations

from diagnosis.catalogue.cause import ABSENCE_ECHOES, LIVE, LOG, STATIC, Cause, Group

_MASTER = "export MASTER_ADDR={master_address} MASTER_PORT={master_port}"
_STORE_ECHOES = ("master-unreachable", "peer-missing", "peer-late", "peer-not-in-collective")

CAUSES = (
    Cause(
        id="master-addr-unresolvable",
        group=Group.RENDEZVOUS,
        title="MASTER_ADDR does not resolve",
        meaning="The name is well formed, but the resolver has no address for it on this node.",
        decided_by="the resolver's error, and the store never reached",
        seen_in=(LIVE, LOG),
        remediation="Use rank 0's private address, or make the name resolve on every node.",
        commands=("getent hosts {name}", _MASTER),
        explains=("env-inconsistent", *_STORE_ECHOES),
    ),
    Cause(
        id="master-addr-malformed",
        group=Group.RENDEZVOUS,
        title="MASTER_ADDR is not a host name or an address",
        meaning="Blanks, brackets, quotes, a scheme, a port, a path or an unreplaced placeholder are part "
        "of the value.",
        decided_by="the value; resolver error -2 on what looks like an address",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Set the bare address; the port belongs into MASTER_PORT.",
        commands=(_MASTER,),
        explains=("master-addr-unresolvable", "env-inconsistent", *_STORE_ECHOES),
    ),
    Cause(
        id="master-addr-empty",
        group=Group.RENDEZVOUS,
        title="MASTER_ADDR is empty",
        meaning="The variable is set to nothing, usually by a command substitution that failed.",
        decided_by="an empty host in the message; the value",
        seen_in=(LIVE, LOG),
        remediation="Set rank 0's private address.",
        commands=(_MASTER,),
        explains=("master-addr-unresolvable", "env-inconsistent", *_STORE_ECHOES),
    ),
    Cause(
        id="master-addr-not-a-member",
        group=Group.RENDEZVOUS,
        title="no rank 0 runs at MASTER_ADDR",
        meaning="The address is a real host's, but rank 0, which serves the store, runs elsewhere.",
        decided_by="MASTER_ADDR is not the address of the member with rank 0",
        seen_in=(LIVE,),
        remediation="Set rank 0's private address on every node.",
        commands=(_MASTER,),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="master-unreachable",
        group=Group.RENDEZVOUS,
        title="the store at MASTER_ADDR:MASTER_PORT cannot be reached",
        meaning="No host, no route, or a filter on the way.",
        decided_by="errno 101, 110 or 113 at the store",
        seen_in=(LIVE, LOG),
        remediation="Check the address, then the security group for MASTER_PORT, then the host's firewall.",
        commands=("nc -zv -w 3 {master_address} {master_port}",),
        explains=("peer-missing", "peer-not-in-collective"),
    ),
    Cause(
        id="port-in-use",
        group=Group.RENDEZVOUS,
        title="another process holds the port",
        meaning="A listener on a chosen port (the store's, or another service's of the job) could not be "
        "opened: a process, often of an earlier run, has it.",
        decided_by="EADDRINUSE at a listener on a chosen port",
        seen_in=(LIVE, LOG),
        remediation="End the process that holds the port, or choose another MASTER_PORT.",
        commands=("sudo ss -ltnp 'sport = :{master_port}'", "export MASTER_PORT={other_port}"),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="env-missing",
        group=Group.RENDEZVOUS,
        title="a variable of the env:// rendezvous is not set",
        meaning="init_process_group without an init_method reads RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT.",
        decided_by="the error names the variable; the environment",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Set the variable on the node, or start the script with torchrun.",
        commands=(
            "export {name}={value}",
            "torchrun --nnodes={nodes} --node-rank={rank} --master-addr={master_address} "
            "--master-port={master_port} SCRIPT",
        ),
        explains=("env-inconsistent", *ABSENCE_ECHOES),
    ),
    Cause(
        id="env-leftover",
        group=Group.RENDEZVOUS,
        title="a variable of another launcher decides ranks or sizes",
        meaning="WORLD_SIZE, RANK or a scheduler's variables were inherited from the shell, a notebook or "
        "a job step, so a process waits for others that nobody started.",
        decided_by="the process waits for more ranks than were started; the variable's origin",
        seen_in=(LIVE, LOG, STATIC),
        remediation="Remove the inherited variables before the start.",
        commands=("unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT",),
        explains=("duplicate-rank", "world-size-mismatch", *ABSENCE_ECHOES),
    ),
    Cause(
        id="env-inconsistent",
        group=Group.RENDEZVOUS,
        title="nodes disagree on the rendezvous",
        meaning="MASTER_ADDR, MASTER_PORT or the interface differs between nodes, so they wait at "
        "different places.",
        decided_by="the values side by side",
        seen_in=(LIVE, STATIC),
        remediation="Give every node the same values.",
        commands=(_MASTER,),
        explains=("master-addr-not-a-member", *_STORE_ECHOES),
    ),
    Cause(
        id="world-size-mismatch",
        group=Group.RENDEZVOUS,
        title="nodes disagree on WORLD_SIZE",
        meaning="A node or a layer of launchers counts another number of ranks than the rest.",
        decided_by="the values side by side; a rank at or above the size; more joined than the size",
        seen_in=(LIVE, LOG),
        remediation="Give every rank the same WORLD_SIZE: the number of processes of the whole job.",
        commands=("export WORLD_SIZE={world_size}",),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="duplicate-rank",
        group=Group.RENDEZVOUS,
        title="two processes claim one rank",
        meaning="The second record overwrites the first at the store, and the rank that nobody claims is "
        "waited for.",
        decided_by="one rank twice, another missing",
        seen_in=(LIVE, LOG),
        remediation="Give every process a rank of its own, from 0 to WORLD_SIZE - 1.",
        commands=("export RANK={other_rank}",),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="peer-missing",
        group=Group.RENDEZVOUS,
        title="one or more ranks never came",
        meaning="The store waits for every rank; one that never starts stops all.",
        decided_by="k of n clients joined; the key of the missing rank",
        seen_in=(LIVE, LOG),
        remediation="Look at the missing node: is it running, and what does its start-up log say.",
        commands=(
            "aws ec2 describe-instances --filters Name=tag:fullmesh:cluster,Values={cluster} --query "
            "'Reservations[].Instances[].[InstanceId,State.Name,PrivateIpAddress]' --output table",
            "aws ec2 get-console-output --instance-id {instance_id} --latest --output text",
        ),
        explains=("peer-not-in-collective",),
    ),
    Cause(
        id="peer-late",
        group=Group.RENDEZVOUS,
        title="a node came after the time-out",
        meaning="Installation, a download or a slow disk held a node up while the others gave up waiting.",
        decided_by="start times that lie further apart than the time-out",
        seen_in=(LIVE, LOG),
        remediation="Give init_process_group a longer time-out, or start the job once every node is ready.",
        commands=("systemd-analyze blame | head", "sudo tail -n 50 /var/log/cloud-init-output.log"),
        explains=("peer-missing", "timeout-too-short"),
    ),
    Cause(
        id="stale-store",
        group=Group.RENDEZVOUS,
        title="a store of an earlier attempt is reused",
        meaning="Keys of a former run (an init file, a run id, a store that outlived its job) count as "
        "ranks of this.",
        decided_by="worker_count above world_size; a TCPStore on MASTER_PORT before the job has its own",
        seen_in=(LIVE, LOG),
        remediation="Use a new init file, run id or port for every attempt.",
        commands=("rm -f {name}", "torchrun --rdzv-id={other_run_id} ..."),
        explains=("port-in-use", *_STORE_ECHOES),
    ),
    Cause(
        id="rdzv-id-mismatch",
        group=Group.RENDEZVOUS,
        title="nodes use different rendezvous ids",
        meaning="Each id is a rendezvous of its own, in which a node waits alone.",
        decided_by="the ids side by side",
        seen_in=(LOG, LIVE),
        remediation="Give --rdzv-id the same value on every node.",
        commands=("torchrun --rdzv-id={run_id} ...",),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="rdzv-host-unrecognised",
        group=Group.RENDEZVOUS,
        title="the rendezvous host does not recognise itself",
        meaning="torchrun serves the store where the endpoint's name matches the host; when it matches "
        "nowhere, nobody serves it.",
        decided_by="the endpoint's own node cannot connect to itself",
        seen_in=(LOG, LIVE),
        remediation="Tell the host that it serves the store.",
        commands=("torchrun --rdzv-conf is_host=true ...", "torchrun --rdzv-conf is_host=false ..."),
        explains=_STORE_ECHOES,
    ),
    Cause(
        id="rdzv-port-blocked",
        group=Group.RENDEZVOUS,
        title="the launcher's random store port is not open",
        meaning="With the c10d rendezvous the workers' store is on a port the kernel chooses, not on the "
        "rendezvous port.",
        decided_by="the rendezvous passes and the store on another port times out",
        seen_in=(LOG, LIVE),
        remediation="Open all TCP between members, or use the static rendezvous, whose store port is "
        "MASTER_PORT.",
        commands=(
            "aws ec2 authorize-security-group-ingress --group-id {group_id} --protocol tcp --port 0-65535 "
            "--source-group {group_id}",
            "torchrun --rdzv-backend=static --nnodes={nodes} --node-rank={rank} "
            "--master-addr={master_address} --master-port={master_port} SCRIPT",
        ),
        explains=("master-unreachable",),
    ),
    Cause(
        id="store-host-exited",
        group=Group.RENDEZVOUS,
        title="the process that holds the store ended",
        meaning="When rank 0 or the agent ends, every other rank loses its connection to the store.",
        decided_by="the store's connection is reset; rank 0's exit",
        seen_in=(LOG, LIVE),
        remediation="Read rank 0's own log: its error came first.",
        commands=("fullmesh explain RANK0.log",),
        explains=("peer-died", "master-unreachable", "peer-not-in-collective"),
    ),
)
