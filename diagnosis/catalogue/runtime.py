"""Causes of the group "runtime": the mesh stood, then a process or a limit broke it."""

from __future__ import annotations

from diagnosis.catalogue.cause import ABSENCE_ECHOES, LIVE, LOG, Cause, Group

CAUSES = (
    Cause(
        id="peer-died",
        group=Group.RUNTIME,
        title="a rank's process ended",
        meaning="A crash or a kill closes its connections; the others report closed or reset, one after "
        "the other.",
        decided_by="the earliest closed or reset of the whole cluster; the process's exit status",
        seen_in=(LOG, LIVE),
        remediation="Read the log of the rank that ended first.",
        commands=("fullmesh explain LOG...", "sudo journalctl -k -g 'killed process|segfault' --no-pager"),
        explains=("peer-not-in-collective",),
    ),
    Cause(
        id="peer-out-of-memory",
        group=Group.RUNTIME,
        title="a rank was ended for memory",
        meaning="The kernel's or the GPU's memory ran out on one rank.",
        decided_by="the out-of-memory text, or the kernel's log",
        seen_in=(LOG, LIVE),
        remediation="Use less memory on that rank, or a larger instance.",
        commands=("sudo journalctl -k -g 'out of memory|oom-kill' --no-pager", "free -h"),
        explains=ABSENCE_ECHOES,
    ),
    Cause(
        id="peer-frozen",
        group=Group.RUNTIME,
        title="a rank is stopped or stuck",
        meaning="The process exists and its kernel still accepts, but it reads nothing.",
        decided_by="Recv-Q grows on the peer; its process state",
        seen_in=(LIVE,),
        remediation="Find out what the process waits for, or continue it.",
        commands=("ps -o pid,stat,wchan:32,cmd -C python3", "ss -tn state established", "kill -CONT {pid}"),
        explains=("peer-not-in-collective", "timeout-too-short", "proxy-sidecar"),
    ),
    Cause(
        id="peer-not-in-collective",
        group=Group.RUNTIME,
        title="a rank never entered the collective",
        meaning="The others wait for it. A branch that only some ranks take, uneven data or an early exit "
        "does this.",
        decided_by="all queues are empty; monitored_barrier names the rank; a missing key of a sub-group",
        seen_in=(LOG, LIVE),
        remediation="Let monitored_barrier name the rank, and compare the ranks' code paths.",
        commands=(
            'python3 -c \'import torch.distributed as d; d.init_process_group("gloo"); '
            "d.monitored_barrier(wait_all_ranks=True)'",
        ),
    ),
    Cause(
        id="collective-mismatch",
        group=Group.RUNTIME,
        title="ranks called different collectives",
        meaning="Another collective, size or order on one rank: data of a wrong length arrives.",
        decided_by="the received data's size; the difference of fingerprints",
        seen_in=(LOG,),
        remediation="Run once with TORCH_DISTRIBUTED_DEBUG=DETAIL: it names both calls.",
        commands=("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
        explains=("peer-died", "peer-not-in-collective"),
    ),
    Cause(
        id="group-mismatch",
        group=Group.RUNTIME,
        title="new_group was called with different rank lists",
        meaning="Every rank has to call new_group, with the same list and in the same order.",
        decided_by="the failure is in new_group, not in init",
        seen_in=(LOG,),
        remediation="Call new_group on every rank with the same list.",
        commands=("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
        explains=("peer-not-in-collective", "peer-missing"),
    ),
    Cause(
        id="version-mismatch",
        group=Group.RUNTIME,
        title="nodes run different builds",
        meaning="Records that Gloo publishes differ in size between releases and builds.",
        decided_by="torch's commit (which fixes Gloo) and Python's minor version side by side, where no "
        "all_reduce passed between them; record sizes that differ",
        seen_in=(LIVE, LOG),
        remediation="Install the same torch and Python on every node.",
        commands=(
            "python3 -c 'import sys, torch; print(sys.version, torch.__version__, "
            "torch.version.git_version)'",
        ),
        explains=("peer-not-in-collective",),
    ),
    Cause(
        id="timeout-too-short",
        group=Group.RUNTIME,
        title="the time-out is below what the cluster needs",
        meaning="The work would have finished later; the time-out was set below the start-up skew or the "
        "data's loading time.",
        decided_by="the operation finishes later; a value far below the skew of start times",
        seen_in=(LIVE, LOG),
        remediation="Raise the time-out where it is read: init_process_group(timeout=...).",
        commands=("grep -rn 'timeout=' SCRIPT",),
    ),
    Cause(
        id="fd-limit",
        group=Group.RUNTIME,
        title="too many open files",
        meaning="A rank needs (N - 1) x contexts x groups sockets beside its files.",
        decided_by="the text; the limit against the need",
        seen_in=(LOG, LIVE),
        remediation="Raise the limit of open files for the job.",
        commands=("ulimit -n 65536", "sudo systemctl set-property {unit} LimitNOFILE=65536"),
        explains=("peer-died", "peer-not-in-collective"),
    ),
    Cause(
        id="port-exhaustion",
        group=Group.RUNTIME,
        title="no ephemeral port is free",
        meaning="Listeners and outgoing connections come from one range; ranks x groups exceed it.",
        decided_by="bind fails on Gloo's own sockets; the range against ranks x groups",
        seen_in=(LOG, LIVE),
        remediation="Widen the range, and the security group with it.",
        commands=("ss -s", "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"),
        explains=("peer-died", "peer-not-in-collective"),
    ),
    Cause(
        id="listen-backlog",
        group=Group.RUNTIME,
        title="connection storms overflow the accept queue",
        meaning="Gloo listens with the system's largest backlog; at a large mesh's start it can be too "
        "small.",
        decided_by="somaxconn and the counter of listen overflows",
        seen_in=(LIVE,),
        remediation="Raise the queue.",
        commands=(
            "nstat -az TcpExtListenOverflows TcpExtListenDrops",
            "sudo sysctl -w net.core.somaxconn=4096",
        ),
        explains=("timeout-too-short",),
    ),
    Cause(
        id="conntrack-exhausted",
        group=Group.RUNTIME,
        title="connection tracking is over its allowance",
        meaning="An instance tracks a limited number of connections; above it new ones are dropped.",
        decided_by="conntrack_allowance_exceeded grows",
        seen_in=(LIVE,),
        remediation="Use fewer connections, a larger instance, or rules that need no tracking (all "
        "traffic, any source, both ways).",
        commands=("ethtool -S {interface} | grep allowance_exceeded",),
        explains=("one-way-block", "pair-blocked", "packet-loss", "timeout-too-short"),
    ),
    Cause(
        id="idle-connection-dropped",
        group=Group.RUNTIME,
        title="an idle connection was forgotten",
        meaning="Connection tracking forgets an idle connection (350 s on Nitro v6) and drops what comes "
        "later; Gloo sets no keepalive.",
        decided_by="a connection that was left alone is dead and a new one works (check --idle-s 400)",
        seen_in=(LIVE, LOG),
        remediation="Raise the interface's idle time-out.",
        commands=(
            "aws ec2 modify-network-interface-attribute --network-interface-id {interface_id} "
            "--connection-tracking-specification TcpEstablishedTimeout=432000",
        ),
        explains=("peer-not-in-collective", "timeout-too-short"),
    ),
    Cause(
        id="libuv-missing",
        group=Group.RUNTIME,
        title="the build has no libuv store",
        meaning="torch 2.4 and later ask for the libuv store by default; some builds lack it.",
        decided_by="the text",
        seen_in=(LOG,),
        remediation="Use the older store back end.",
        commands=("export USE_LIBUV=0",),
        explains=("peer-missing", "master-unreachable"),
    ),
    Cause(
        id="clock-skew",
        group=Group.RUNTIME,
        title="clocks differ by more than 100 ms",
        meaning="The mesh does not mind, but logs of several hosts cannot be ordered, and signed requests "
        "fail when the clock is minutes away.",
        decided_by="the offsets between nodes, measured over the mesh's own connections; all times of a "
        "verdict are put on one line by them",
        seen_in=(LIVE,),
        remediation="Let chrony follow the time service of EC2.",
        commands=("chronyc tracking", "chronyc sources", "sudo systemctl enable --now chronyd"),
        decides_verdict=False,
    ),
)
