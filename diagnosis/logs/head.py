"""Who printed a line, and when: what launchers, collectors and c10d put before a message.

Prefixes stack (`kubectl logs` before torchrun's before c10d's), so that they are taken off the
front one after the other. A rank or a time inside of a message is somebody else's.
"""

from __future__ import annotations

import re
import time
from typing import Dict, NamedTuple, Optional, Tuple

from diagnosis.logs.facts import compiled


class Head(NamedTuple):
    """at: seconds since a year's begin, months of 31 days: for comparing, never for showing.

    c10d's own prefix has no year, so that no year is used at all.
    """

    rank: Optional[int] = None
    node: Optional[str] = None
    at: Optional[float] = None


_CLOCK = r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d(?:[.,]\d{1,9})?)"
_ISO = rf"(?P<y>\d{{4}})[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _]{_CLOCK}"
_GLOG = rf"[WEIFC](?P<mo>\d{{1,2}})(?P<d>\d\d) {_CLOCK}"
_ADDRESS = r"[0-9A-Fa-f.:]{3,45}"
_NAME = r"[\w.-]{1,60}"

_DIGIT, _LETTER = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OPEN, _ROUND = "[", "("

# (characters it may begin with, pattern). Each is matched where the one before it ended. Groups: rank, node,
# and of a time y, mo, d, h, mi, s (epoch: in milliseconds).
PREFIXES: Tuple[Tuple[str, str], ...] = (
    (" \t>&", r"[ \t]*(?:>|&gt;)[> ]*"),  # quoted in an issue or a mail
    ("` \t", r"`{3}\w*|[ \t]{1,200}(?=\S)"),
    (_DIGIT, rf"{_ISO}[+-]\d\d:\d\d (?P<node>[\w.-]{{1,80}}/\S{{1,120}}) "),  # aws logs tail: the stream
    (
        _DIGIT + _OPEN,  # SGLang puts its tensor-parallel rank behind the time
        rf"\[?{_ISO}(?:Z|[+-]\d\d:?\d\d)?(?: (?:DP\d{{1,4}} )?TP(?P<rank>\d{{1,5}})(?: \w+)?)?"
        r"\]?[,:]?\s{0,3}",
    ),
    (_OPEN + "WEIFC", rf"\[?{_GLOG}(?: \d+)?(?: [^\]\s]{{1,200}}\]?)?\s?"),
    (
        "EWIDC",  # vLLM
        rf"(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL)\s(?P<mo>\d\d)-(?P<d>\d\d) {_CLOCK}"
        r"(?: \[[^\]]{1,120}\])?\s?",
    ),
    ("s", r"(?:stdout|stderr) [FP] "),  # kubelet's own files
    (
        _LETTER,  # syslog
        rf"(?P<month>[A-Z][a-z]{{2}}) (?P<d>[ \d]\d) {_CLOCK} (?P<node>{_NAME}) (?:\S{{1,60}}?: )?",
    ),
    (_ROUND, r"\((?:Vllm)?\w{0,30}? ?rank=(?P<rank>\d{1,6}) pid=\d+\)\s?"),  # vLLM
    (_ROUND, r"\(Worker_TP(?P<rank>\d{1,5})(?:_EP\d+)? pid=\d+\)\s?"),
    (_ROUND, rf"\((?:\w[\w.]{{0,60}} )?pid=\d+(?:, ip=(?P<node>{_ADDRESS}))?\)\s?"),  # Ray
    (_LETTER + _DIGIT, r"(?P<node>[A-Za-z][\w.-]{0,58}\d|\w[\w.-]{1,59}(?=  )) {1,20}\| ?"),  # docker compose
    (_OPEN, rf"\[pod/(?P<node>{_NAME})/{_NAME}\] ?"),  # kubectl --prefix
    (_OPEN, r"(?i:\[rank ?:? ?(?P<rank>\d{1,6})\])[: ]{0,3}"),  # torchrun, Lightning, accelerate
    ("rR", r"(?i:rank ?(?P<rank>\d{1,6}))(?=[\s:|\]]) ?[:|\]]? ?"),
    ("r", r"r(?P<rank>\d{1,6})[|:] ?"),
    (_DIGIT, r"(?P<rank>\d{1,6}): "),  # srun --label
    (_OPEN, r"\[1,(?P<rank>\d{1,6})\]<\w{1,8}>: ?"),  # mpirun --tag-output
    (_OPEN, r"\[\w{1,40}?\d{1,4}\]: ?"),  # torchrun's role and local rank
    (_LETTER + _DIGIT, r"(?P<node>[\w.-]{1,40}/\d{1,4}) \[\d{1,4}\]: ?"),  # torchx
    (
        _LETTER + _DIGIT,  # pdsh, as DeepSpeed runs it
        r"(?P<node>[a-z][\w.-]{0,60}\d|\d{1,3}(?:\.\d{1,3}){3}): ",
    ),
    ("=", r"==> (?P<node>\S{1,120}) <=="),  # tail of several files
    ("1", r'(?P<epoch>1\d{12}),"?'),  # CloudWatch, exported as CSV
)
_RELOOK = 8  # prefixes of one line; more are somebody's prose

# Fields of a collector's JSON. They stand anywhere in the line.
_JSON_NODE = (
    r'"(?:pod_name|pod|host|hostname|instance_id|nodeName|logStreamName|@logStream|log_stream)"'
    r'\s{0,2}:\s{0,2}"(?P<node>[^"]{1,120})"'
)
_JSON_TIME = rf'"(?:timestamp|@timestamp|time|ts)"\s{{0,2}}:\s{{0,2}}"?(?:(?P<epoch>1\d{{12}})|{_ISO})'
# Messages that name their own speaker, in any wording around it.
_OWN_RANK = (
    r"\[Rank (\d{1,6})\]|\brank=(\d{1,6}), size=|\bon rank:? (\d{1,6}), for key|GLOBAL_RANK: (\d{1,6})\b"
    r"|\bRank (\d{1,6}) successfully reached|^\S{0,40} ?\[?rank (\d{1,6})\]? "
    r"|(?:^|[\s\])\"'>])\[rank ?(\d{1,6})\]"
)
# Times behind a prefix that is not known.
_INNER_TIMES = (rf"(?:^|[\s\[(]){_ISO}", rf"[\s\[]{_GLOG}")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HEAD = 300  # what stands further right belongs to the message


def head_of(text: str) -> Head:
    """The speaker and the moment that a line's prefixes tell."""
    rank: Optional[int] = None
    node: Optional[str] = None
    at: Optional[float] = None
    front = text[:_HEAD]
    if front[:1] in "{[" and '":' in front:
        found = compiled(_JSON_NODE).search(text[:4096])
        node = found.group("node") if found else None
        found = compiled(_JSON_TIME).search(text[:4096])
        at = _moment(found.groupdict()) if found else None
    place = 0
    for _ in range(_RELOOK):
        found = _prefix(front, place)
        if found is None or found.end() == place:
            break
        values = found.groupdict()
        if rank is None and values.get("rank"):
            rank = int(values["rank"])
        node = node or values.get("node")
        at = at if at is not None else _moment(values)
        place = found.end()
    if rank is None:
        found = compiled(_OWN_RANK).search(front, place)
        rank = int(next(group for group in found.groups() if group is not None)) if found else None
    for pattern in _INNER_TIMES if at is None else ():
        found = compiled(pattern).search(front)
        at = at if found is None else _moment(found.groupdict())
    return Head(rank=rank, node=node, at=at)


def _prefix(text: str, place: int) -> Optional[re.Match[str]]:
    first = text[place : place + 1]
    for begins, pattern in PREFIXES:
        if first and first in begins:
            found = compiled(pattern).match(text, place)
            if found is not None and found.end() > place:
                return found
    return None


def _moment(values: Dict[str, Optional[str]]) -> Optional[float]:
    if values.get("epoch"):
        milliseconds = int(values["epoch"] or 0)
        moment = time.gmtime(milliseconds // 1000)
        month, day, hour, minute = moment.tm_mon, moment.tm_mday, moment.tm_hour, moment.tm_min
        second = moment.tm_sec + milliseconds % 1000 / 1000
    elif values.get("h") and values.get("d"):
        name = values.get("month")
        if name is not None and name not in _MONTHS:
            return None
        month = _MONTHS.index(name) + 1 if name is not None else int(values.get("mo") or 0)
        day, hour, minute = (int(values[part] or 0) for part in ("d", "h", "mi"))
        second = float((values["s"] or "0").replace(",", "."))
    else:
        return None
    return (((month * 31.0 + day) * 24 + hour) * 60 + minute) * 60 + second


def rank_of(text: str) -> Optional[int]:
    """The rank that printed the line, where its prefix or message says so."""
    return head_of(text).rank


def node_of(text: str) -> Optional[str]:
    """The host that printed the line, where its prefix says so."""
    return head_of(text).node


def time_of(text: str) -> Optional[float]:
    """The moment of the line, where its prefix says so."""
    return head_of(text).at
