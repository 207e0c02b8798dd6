"""What launchers, kernels and Python print around a job: its environment, its members, its end."""

from __future__ import annotations

from diagnosis.explain_facts import Kind
from diagnosis.signatures import Signature

_VALUE = r"['\"]?\s{0,3}[=:]\s{0,3}['\"]?(?P<value>[^\s'\";)}\]]*)"
_WORD = r"['\"]?\s{0,3}[=:]\s{0,3}['\"]?(?P<value>[^\s'\",;)}\]]*)"
_OPTION = r"(?:=(?P<value>\S*)|\s+(?!-)(?P<next>\S+)|(?P<none>)(?=\s+-|\s*$))"

SIGNATURES = (
    # --- the environment --------------------------------------------------------------------
    Signature(
        Kind.ENV_MISSING,
        "but not set",
        r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
        r"|LOCAL_RANK) expected, but not set",
    ),
    Signature(
        Kind.ENV_MISSING,
        "KeyError",
        r"KeyError: ['\"](?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK)['\"]",
    ),
    Signature(
        Kind.SETTING, "GLOO_", rf"(?<![A-Za-z_])(?P<name>(?:TORCH_)?GLOO_[A-Z_]{{2,60}}){_VALUE}", every=True
    ),
    Signature(
        Kind.SETTING, "MASTER_", rf"(?<![A-Za-z_$])(?P<name>MASTER_ADDR|MASTER_PORT){_WORD}", every=True
    ),
    Signature(Kind.SETTING, "WORLD_SIZE", rf"(?<![A-Za-z_$])(?P<name>WORLD_SIZE){_WORD}", every=True),
    Signature(
        Kind.SETTING,
        "--master",
        rf"--master[-_]addr(?:ess)?{_OPTION}",
        fixed={"name": "MASTER_ADDR"},
    ),
    Signature(Kind.SETTING, "--nnodes", rf"--nnodes{_OPTION}", fixed={"name": "nnodes"}),
    Signature(Kind.SETTING, "nnodes=", r"(?<!-)\bnnodes=(?P<value>\d{1,6})", fixed={"name": "nnodes"}),
    Signature(Kind.SETTING, "--rdzv", rf"--rdzv[-_]endpoint{_OPTION}", fixed={"name": "rdzv_endpoint"}),
    Signature(
        Kind.SETTING, "--dist-init", rf"--dist[-_]init[-_]addr{_OPTION}", fixed={"name": "rdzv_endpoint"}
    ),
    Signature(
        Kind.SETTING,
        "rdzv_endpoint",
        r"(?<!-)\brdzv_endpoint\s{0,12}[:=]\s*(?P<value>[^\s,]+)",
        fixed={"name": "rdzv_endpoint"},
    ),
    Signature(
        Kind.SETTING,
        "IP address of",
        r"Using IP address of\s+(?P<value>\S*?)\s*for node ",
        fixed={"name": "MASTER_ADDR"},
    ),
    Signature(
        Kind.SETTING,
        "srun -",
        r"\bsrun\b.{0,200}\s(?:-n|--ntasks[= ])\s?(?P<value>\d{1,6})\b",
        fixed={"name": "srun"},
    ),
    Signature(Kind.SETTING, "nodes seen", r"nodes seen: (?P<value>\d{1,5})", fixed={"name": "nnodes"}),
    # --- rendezvous of torchrun ---------------------------------------------------------------
    Signature(
        Kind.RUN_ID, "run_id", r"generated a random run_id: (?P<value>\S{1,100})", fixed={"random": "yes"}
    ),
    Signature(Kind.RUN_ID, "--rdzv", rf"--rdzv[-_]id{_OPTION}"),
    Signature(Kind.RUN_ID, "run_id", r"\brun_id\s{1,12}: (?P<value>\S{1,100})"),
    Signature(Kind.RUN_ID, "rendezvous '", r"the rendezvous '(?P<value>[^'\s]{1,100})'", gate="ailed"),
    Signature(
        Kind.LOCAL_NODE,
        "The node '",
        r"The node '(?P<value>[A-Za-z][\w.-]{0,120}?)_\d+_\d+' has failed",
        gate="ailed",
    ),
    Signature(
        Kind.RENDEZVOUS,
        "RendezvousConnectionError",
        r"RendezvousConnectionError: The connection to the C10d store has failed",
        fixed={"error": "connection"},
    ),
    Signature(
        Kind.RENDEZVOUS, "RendezvousTimeoutError", r"RendezvousTimeoutError\b", fixed={"error": "timeout"}
    ),
    Signature(
        Kind.RENDEZVOUS, "RendezvousClosedError", r"RendezvousClosedError\b", fixed={"error": "closed"}
    ),
    Signature(
        Kind.RENDEZVOUS,
        "no heartbeat",
        r"removed from the rendezvous .{0,120}no heartbeat",
        fixed={"error": "heartbeat"},
    ),
    Signature(
        Kind.RENDEZVOUS_DONE,
        "master_port=",
        r"(?:(?<![-\w])master_addr=(?P<host>[^\s,]{1,253}).{0,80}?)?(?<![-\w])master_port=(?P<port>\d{1,5})",
    ),
    # --- members ------------------------------------------------------------------------------
    Signature(
        Kind.MEMBER, "GLOBAL_RANK", r"GLOBAL_RANK: (?P<rank>\d{1,6}), MEMBER: \d{1,6}/(?P<size>\d{1,6})"
    ),
    Signature(
        Kind.RANK_RANGE,
        "rank",
        r"(?i)\brank[ =:(]{1,3}(?P<rank>\d{1,6})\)? (?:must|should) be (?:less|smaller|in|between"
        r"|<).{0,60}?world.?size"
        r"(?:[ =:(]{1,4}(?P<size>\d{1,6}))?",
        gate="rror",
    ),
    Signature(
        Kind.SETTING,
        "srun` command is available",
        r"`srun` command is available",
        fixed={"name": "srun unused", "value": "yes"},
    ),
    # --- how processes end --------------------------------------------------------------------
    Signature(Kind.SUMMARY, "     : ", r"^\W*time\s{1,12}: (?P<time>\S{10,40})$"),
    Signature(Kind.SUMMARY, "     : ", r"^\W*host\s{1,12}: (?P<host>\S{1,253})$"),
    Signature(Kind.SUMMARY, "     : ", r"^\W*rank\s{1,12}: (?P<rank>\d{1,6}) \(local_rank"),
    Signature(Kind.EXIT, "exitcode", r"exitcode\s{0,12}: (?P<code>-?\d{1,3})\b"),
    Signature(Kind.SIGNAL, "ignal ", r"Signal (?P<signal>\d{1,2}) \(\w+\) received by PID \d+"),
    Signature(Kind.SIGNAL, "got signal", r"Process \d+ got signal: (?P<signal>\d{1,2})"),
    Signature(Kind.SIGNAL, "death signal", r"[Rr]eceived (?:Signals\.)?(?P<signal>\w{1,10}) death signal"),
    Signature(Kind.SIGNAL, "DUE TO", r"(?P<signal>CANCELLED) AT .{0,60}DUE TO [A-Z ]{4,40}"),
    Signature(Kind.SIGNAL, "egmentation fault", r"(?P<signal>[Ss]egmentation fault)"),
    Signature(Kind.ECHO, "closing signal", r"Sending process \d+ closing signal"),
    Signature(
        Kind.MEMORY,
        "emory",
        r"CUDA out of memory|OutOfMemoryError|Out of memory: Kill|out of memory: Kill"
        r"|\bCannot allocate memory\b"
        r"|can't allocate memory|running low on memory|Memory cgroup out of memory|[Ee]xceeded memory limit",
    ),
    Signature(Kind.MEMORY, "oom-kill", r"\boom-kill"),
    Signature(Kind.MEMORY, "oom_kill", r"\boom_kill"),
    Signature(Kind.MEMORY, "OOMKilled", r"\bOOMKilled\b|\bOOM[- ]killer\b|\bOut Of Memory\b"),
    Signature(Kind.MEMORY, "MemoryError", r"(?:^|\s)MemoryError\b"),
    Signature(Kind.FILES, "oo many open files", r"[Tt]oo many open files"),
    Signature(Kind.FILES, "[Errno 24]", r"\[Errno 24\]", gate="rror"),
    # --- where in the program -----------------------------------------------------------------
    Signature(Kind.FRAME, "in new_group", r", in (?P<function>new_group)\s*$"),
)
