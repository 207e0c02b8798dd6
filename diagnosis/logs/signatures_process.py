"""How processes, hosts and what stands between them end a job: signals, limits, kernels, proxies, pings."""

from __future__ import annotations

from diagnosis.logs.kinds import Kind
from diagnosis.logs.signature import Signature

# A line that only advises about a failure is none of it.
_ADVICE = (
    r"(?i)\b(?:avoid\w*|prevent\w*|if|may|might|could|would|helps?|hint|tip|instead|handl\w+)\b.{0,80}"
    r"(?:out.?of.?memory|\boom\b|open files)"
)

SIGNATURES = (
    # --- how processes end --------------------------------------------------------------------
    Signature(Kind.SUMMARY, "     : ", r"^\W*time\s{1,12}: (?P<time>\S{10,40})$"),
    Signature(Kind.SUMMARY, "     : ", r"^\W*host\s{1,12}: (?P<host>\S{1,253})$"),
    Signature(Kind.SUMMARY, "     : ", r"^\W*rank\s{1,12}: (?P<rank>\d{1,6}) \(local_rank"),
    Signature(
        Kind.EXIT,
        "exitcode",
        r"exitcode\s{0,12}: (?P<code>-?\d{1,3})\b(?:.{0,40}?\(pid: (?P<pid>\d{1,9}))?",
    ),
    Signature(Kind.SIGNAL, "ignal ", r"Signal (?P<signal>\d{1,2}) \(\w+\) received by PID (?P<pid>\d{1,9})"),
    Signature(Kind.SIGNAL, "got signal", r"Process \d+ got signal: (?P<signal>\d{1,2})"),
    Signature(Kind.SIGNAL, "death signal", r"[Rr]eceived (?:Signals\.)?(?P<signal>\w{1,10}) death signal"),
    Signature(Kind.SIGNAL, "DUE TO", r"(?P<signal>CANCELLED) AT .{0,60}DUE TO (?P<why>[A-Z ]{4,40})"),
    Signature(Kind.SIGNAL, "egmentation fault", r"(?P<signal>[Ss]egmentation fault)"),
    Signature(
        Kind.SIGNAL,
        "DataLoader worker",
        r"DataLoader worker \(pid\(?s?\)? [\d, ]{1,60}\) is killed by signal: (?P<signal>[A-Z][a-z]+)",
    ),
    Signature(
        Kind.FORCED,
        "forcefully exiting via",
        r"Unable to shutdown process (?P<pid>\d{1,9}) via \S{1,40}, forcefully exiting via",
    ),
    Signature(Kind.ECHO, "closing signal", r"Sending process \d+ closing signal"),
    Signature(Kind.ECHO, "abandoning and continuing", r"Process \d+ did not exit after \S{1,40} within"),
    Signature(Kind.STUCK, "uninterruptible sleep", r"Worker pid=\d+ stuck in uninterruptible sleep"),
    # --- memory and files ---------------------------------------------------------------------
    Signature(
        Kind.MEMORY,
        "ut of memory",
        r"(?i)\b(?:CUDA|HIP|NPU|XPU|MPS backend) out of memory\b|\bout of memory: kill|\bcgroup out of memory"
        r"|\bout of memory\b.{0,20}tr(?:ying|ied) to",
        unless=_ADVICE,
    ),
    Signature(Kind.MEMORY, "OutOfMemoryError", r"\bOutOfMemoryError\b", unless=_ADVICE),
    Signature(Kind.MEMORY, "allocate memory", r"\b[Cc]annot allocate memory\b|can't allocate memory"),
    Signature(Kind.MEMORY, "low on memory", r"running low on memory"),
    Signature(Kind.MEMORY, "memory limit", r"[Ee]xceeded (?:job |step )?memory limit"),
    Signature(Kind.MEMORY, "oom-kill", r"\boom-kill"),
    Signature(Kind.MEMORY, "oom_", r"\boom_(?:kill|reaper)"),
    Signature(Kind.MEMORY, "OOM", r"\bOOMKilled\b|\bOOM[- ]?killer\b|\bOOM Killed\b"),
    Signature(Kind.MEMORY, "Out Of Memory", r"\bOut Of Memory\b"),
    Signature(Kind.MEMORY, "MemoryError", r"(?:^|\s)MemoryError\b"),
    Signature(Kind.MEMORY, "bad_alloc", r"\bstd::bad_alloc\b"),
    Signature(Kind.FILES, "oo many open files", r"(?i)too many open files", unless=_ADVICE),
    Signature(Kind.FILES, "[Errno 24]", r"\[Errno 24\]"),
    # --- between the members ------------------------------------------------------------------
    Signature(Kind.PROXY, "istio", r"\bistio(?:-proxy|-init|d)?\b"),
    Signature(Kind.PROXY, "envoy", r"\benvoy\b"),
    Signature(Kind.PROXY, "linkerd", r"\blinkerd(?:-proxy|-init)?\b"),
    Signature(
        Kind.PROXY_ANSWER,
        "upstream connect error",
        r"upstream connect error or disconnect/reset before headers",
    ),
    Signature(
        Kind.PROXY_CUT,
        "luster",
        r"\b(?:UF|UC|UH|UO|DC|NR|URX)\b.{0,300}\b(?:Inbound)?(?:Passthrough|BlackHole)Cluster",
    ),
    Signature(Kind.PROXY_CUT, "bound|", r"\b(?:UF|UC|UH|UO|DC|NR|URX)\b.{0,300}\b(?:in|out)bound\|\d+\|"),
    # libfabric's words for the states of EFA's completions (prov/efa/src/efa_errno.h)
    Signature(Kind.FABRIC, "nreachable remote", r"Unreachable remote \(never received a response\)"),
    Signature(
        Kind.FABRIC_LOST,
        "nresponsive ",
        r"Unresponsive (?:remote \(was previously|receiver \(reachable by EFA)",
    ),
    Signature(
        Kind.FABRIC_LOST, "prov_err", r"efa\w*:cq:.{0,120}\bprov_err:? (?:Not a directory|Unknown error)"
    ),
    Signature(
        Kind.UNREACHABLE,
        "estination Host Unreachable",
        r"^From (?P<via>\S{3,45}) icmp_seq=\d+ Destination Host Unreachable",
    ),
    Signature(
        Kind.UNREACHABLE,
        " dev ",
        r"^(?P<ip>\d{1,3}(?:\.\d{1,3}){3}) dev \S{1,15} .{0,60}\b(?:FAILED|INCOMPLETE)\s*$",
    ),
    Signature(
        Kind.PROHIBITED,
        "rohibited",
        r"^From \S{3,45} icmp_seq=\d+ (?:Destination Host Prohibited|Packet filtered)|\bhost-prohibited\b"
        r"|\badmin-prohibited\b",
    ),
    Signature(Kind.PROHIBITED, "reject with", r"\breject with (?:icmp|icmpv6|icmpx|tcp)\b"),
    Signature(Kind.PROHIBITED, "reject-with", r"\breject-with (?:icmp|tcp)-\S{1,40}"),
    # --- where in the program -----------------------------------------------------------------
    Signature(Kind.FRAME, "in new_group", r", in (?P<function>new_group)\s*$"),
    Signature(Kind.FRAME, "in init_process_group", r", in (?P<function>init_process_group)\s*$"),
)
