"""What launchers and shells print around a job: its environment, its rendezvous, its members."""

from __future__ import annotations

from diagnosis.logs.kinds import Kind
from diagnosis.logs.signature import Signature

# NAME=value of a shell, where a blank ends the value at once; NAME = value and "NAME": "value" of dumps.
_IS = r"['\"]?(?:=|\s{1,3}=\s{1,3}|\s{0,3}:\s{0,3})['\"]?"
_VALUE = _IS + r"(?P<value>[^\s'\";)}\]]*)"
_WORD = _IS + r"(?P<value>[^\s'\",;)}\]]*)"
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
        Kind.OPTION_MISSING,
        "is absent in ",
        r"(?P<name>rank|Port) is absent in (?:RendezvousParameters|endpoint)",
    ),
    Signature(
        Kind.OPTION_MISSING,
        "parameter missing",
        r"torch\.distributed using \w{2,6}:// rendezvous: (?P<name>rank|world.size) parameter missing",
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
        "_SIZE",
        r"(?<![A-Za-z_$])(?P<from>OMPI_COMM_WORLD_SIZE|PMI_SIZE)=(?P<value>\d{1,6})\b",
        fixed={"name": "launcher size"},
    ),
    Signature(
        Kind.SETTING,
        "SLURM_N",
        r"(?<![A-Za-z_$])(?P<from>SLURM_NTASKS|SLURM_NPROCS)[=:] ?(?P<value>\d{1,6})\b",
        fixed={"name": "launcher size"},
    ),
    Signature(
        Kind.SETTING,
        "PET_NNODES",
        r"(?<![A-Za-z_$])(?P<from>PET_NNODES)=(?P<value>\d{1,6})\b",
        fixed={"name": "launcher size"},
    ),
    Signature(
        Kind.VERSION,
        "orch",
        r"(?i)(?<![\w.])(?:py)?torch(?:\.__version__| version)?\s{0,2}[:= ]{1,3}v?"
        r"(?P<value>\d\.\d{1,2}\.\d{1,2})(?![\w.]*/)",
    ),
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
    Signature(Kind.RUN_ID, "rendezvous '", r"the rendezvous '(?P<value>[^'\s]{1,100})'"),
    Signature(
        Kind.LOCAL_NODE,
        "The node '",
        r"The node '(?P<value>[A-Za-z][\w.-]{0,120}?)_\d+_\d+' has failed",
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
    Signature(Kind.RENDEZVOUS_CLOSED, "RendezvousClosedError", r"RendezvousClosedError\b"),
    Signature(
        Kind.RENDEZVOUS_CLOSED, "is closed, terminating", r"rendezvous '[^']{0,100}' is closed, terminating"
    ),
    Signature(Kind.HEARTBEAT_LOST, "no heartbeat", r"removed from the rendezvous .{0,120}no heartbeat"),
    Signature(
        Kind.AGENT_LOST,
        "has failed to ",
        r"The node '[^']{1,160}' has failed to (?P<what>send a keep-alive heartbeat to|shutdown) the r",
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
    ),
    Signature(
        Kind.RANK_RANGE,
        "Invalid rank",
        r"Invalid rank (?P<rank>\d{1,6}), rank should be in the interval \[0, (?P<last>\d{1,6})\]",
    ),
    Signature(
        Kind.GROUP_CALL,
        "new_group",
        r"\bnew_group\b[^\[]{0,40}\[(?P<ranks>\d{1,6}(?:, ?\d{1,6}){0,60})\]",
    ),
    Signature(
        Kind.SETTING,
        "srun` command is available",
        r"`srun` command is available",
        fixed={"name": "srun unused", "value": "yes"},
    ),
)
