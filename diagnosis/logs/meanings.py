"""What one line alone decides or hints at, of kinds that need no second line: one row a kind.

To add a message: a row in a `signatures_*` module, with the kind that it means. A meaning that no
kind has yet: a kind in `kinds`, and a row here. Only what two lines decide together needs
a rule in `address`, `members`, `rendezvous`, `elastic`, `runtime` or `between`.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from diagnosis.logs.claims import EVERY_LOG, PROBE, Claim, Tier, View, node
from diagnosis.logs.kinds import LEAVING, OVERCOME, Kind


class Meaning(NamedTuple):
    """What a kind of line shows.

    decides: the cause that such a line is enough for. hints: candidates in order, where it is not.
    summary: `{name}` is a value of the line. whole: it is said of the cluster, not of who printed it.
    ask: the command that decides.
    """

    summary: str
    decides: str = ""
    hints: Tuple[str, ...] = ()
    whole: bool = False
    tier: Tier = Tier.SELF_EVIDENT
    ask: Optional[str] = None


MEANINGS: Dict[Kind, Meaning] = {
    # --- decisive ---------------------------------------------------------------------------------
    Kind.FAMILIES: Meaning(
        "one rank publishes IPv4 (family 2) and another IPv6 (family 10); Gloo cannot pair them",
        decides="ipv4-ipv6-mismatch",
        whole=True,
    ),
    Kind.LIBUV: Meaning("this build of torch has no libuv store", decides="libuv-missing", whole=True),
    Kind.TRANSPORT: Meaning(
        "GLOO_DEVICE_TRANSPORT (or lazy init) asks for a transport that this build lacks",
        decides="transport-unsupported",
    ),
    Kind.FILES: Meaning("the limit of open files is reached", decides="fd-limit"),
    Kind.MEMORY: Meaning("a process was ended, or failed, for want of memory", decides="peer-out-of-memory"),
    Kind.RECORD: Meaning(
        "a peer's record in the store has another layout: another build of torch or Gloo wrote it",
        decides="version-mismatch",
        whole=True,
    ),
    Kind.SIZE_MISMATCH: Meaning(
        "ranks called different collectives, shapes or orders: {received} bytes came where {expected} were "
        "due",
        decides="collective-mismatch",
    ),
    Kind.FINGERPRINT: Meaning(
        "ranks called different collectives, shapes or orders", decides="collective-mismatch"
    ),
    Kind.OPTION_MISSING: Meaning(
        "the rendezvous was not told its {name}: neither the environment nor an option gives it",
        decides="env-missing",
    ),
    Kind.STUCK: Meaning(
        "a worker is in the kernel's uninterruptible sleep: storage or a driver holds it",
        decides="peer-frozen",
        tier=Tier.ENDED,
    ),
    Kind.PROXY_ANSWER: Meaning(
        "a proxy answered in place of the member", decides="proxy-sidecar", whole=True
    ),
    Kind.FABRIC: Meaning(
        "EFA never got an answer from a peer that the launcher had reached: EFA needs all protocols, both "
        "ways, with the group itself",
        decides="efa-self-egress",
        whole=True,
    ),
    # --- hints ------------------------------------------------------------------------------------
    Kind.SELF: Meaning(
        "a rank was told to connect to its own address: two ranks published the same one",
        hints=("duplicate-rank", "duplicate-address", "stale-store"),
        ask=EVERY_LOG,
    ),
    Kind.FABRIC_LOST: Meaning(
        "EFA's device reported a peer that does not answer",
        hints=("efa-self-egress", "peer-died"),
        ask="aws ec2 describe-security-group-rules --filters Name=group-id,Values=GROUP_ID",
    ),
    Kind.ODD_CLIENT: Meaning(
        "the store was sent, or holds, what this build does not understand",
        hints=("version-mismatch", "stale-store", "proxy-sidecar"),
        ask=EVERY_LOG,
    ),
    Kind.SEQUENCE: Meaning(
        "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER changed after the device was made, or differs between ranks",
        hints=("env-inconsistent", "version-mismatch"),
        ask="env | grep GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER  # on every node",
    ),
    Kind.DEVICE_EMPTY: Meaning(
        "Gloo was given neither an interface nor a host name: GLOO_SOCKET_IFNAME ends in a comma, or this "
        "host has no usable name",
        hints=("ifname-syntax", "hostname-unresolvable"),
        ask="env | grep GLOO_SOCKET_IFNAME; hostname; getent ahosts $(hostname)",
    ),
    Kind.PRECHECK: Meaning(
        "the barrier that TORCH_DISTRIBUTED_DEBUG=DETAIL puts before a collective failed",
        hints=("peer-not-in-collective", "collective-mismatch", "peer-died"),
        ask=EVERY_LOG,
    ),
    Kind.BARRIER_NONE: Meaning(
        "no rank came to the barrier before rank 0's time-out",
        hints=("peer-not-in-collective", "timeout-too-short", "peer-frozen"),
        ask=EVERY_LOG,
    ),
    Kind.HEARTBEAT_LOST: Meaning(
        "a node sent no heartbeat any more", hints=("peer-died", "host-unreachable"), ask=PROBE
    ),
    Kind.AGENT_LOST: Meaning(
        "an agent lost the rendezvous' store: its host left, which is normal at a job's end",
        hints=("store-host-exited", "master-unreachable"),
        ask=EVERY_LOG,
    ),
    Kind.RENDEZVOUS_CLOSED: Meaning(
        "the rendezvous of this id was closed already: an earlier run's, or another node ended",
        hints=("stale-store", "peer-died"),
        ask="torchrun --rdzv-id=$(date +%s) ...",
    ),
    Kind.BACKLOG: Meaning(
        "the store's listen queue is shorter than the number of workers",
        hints=("listen-backlog",),
        ask="nstat -az TcpExtListenOverflows TcpExtListenDrops",
    ),
}


def meaning_claims(view: View) -> List[Claim]:
    """Of each kind in the table the first line, by the clock where lines have one."""
    claims: List[Claim] = []
    for kind, meaning in MEANINGS.items():
        facts = view.book.all(kind)
        if (kind in OVERCOME and view.overcome(facts)) or (kind in LEAVING and view.left_after_work):
            continue
        if not facts:
            continue
        fact = min(facts, key=lambda one: (one.at is None, one.at or 0.0, one.order))
        summary = meaning.summary
        for name, value in fact.values.items():
            summary = summary.replace("{" + name + "}", value)
        claim = Claim(
            id="",
            facts=(fact,),
            summary=summary.partition(": {received}")[0],
            subject="cluster" if meaning.whole else node(fact.rank),
            tier=meaning.tier,
            ask=meaning.ask,
        )
        if meaning.decides:
            claims.append(claim._replace(id=meaning.decides))
        claims += [claim._replace(id=hint, sure=False, subject="cluster") for hint in meaning.hints]
    return claims
