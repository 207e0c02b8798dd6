"""A security group's rule as one line of text, as EC2 takes it, and as a command of the AWS CLI."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from cluster.rules import SecurityGroupRule, SourceKind

_LIST_OF = {SourceKind.GROUP: "UserIdGroupPairs", SourceKind.PREFIX_LIST: "PrefixListIds"}
_KEY_OF = {SourceKind.GROUP: "GroupId", SourceKind.PREFIX_LIST: "PrefixListId"}


def way(rule: SecurityGroupRule) -> str:
    """What EC2 calls the direction."""
    return "egress" if rule.egress else "ingress"


def rule_line(rule: SecurityGroupRule) -> str:
    """The rule in the words that `--what-if` takes: "sg-1 ingress tcp 29500 from sg-1"."""
    return f"{rule.group_id} {way(rule)} {_traffic(rule)} {'to' if rule.egress else 'from'} {rule.source}"


def _traffic(rule: SecurityGroupRule) -> str:
    if rule.protocol == "-1":
        return "all"
    if rule.protocol in ("icmp", "icmpv6"):
        if rule.first in (None, -1):
            return f"{rule.protocol} all"
        code = "" if rule.last in (None, -1) else f":{rule.last}"
        return f"{rule.protocol} {rule.first}{code}"
    if rule.protocol not in ("tcp", "udp"):
        return rule.protocol
    first, last = _span(rule)
    return f"{rule.protocol} {first}" if first == last else f"{rule.protocol} {first}-{last}"


def _span(rule: SecurityGroupRule) -> Tuple[int, int]:
    first, last = rule.first, rule.last
    return (0, 65535) if first is None or last is None or first < 0 else (first, last)


def permission(rule: SecurityGroupRule) -> Dict[str, Any]:
    """The rule as one IpPermission with one source, as EC2's calls take it and its documents hold it."""
    found: Dict[str, Any] = {"IpProtocol": rule.protocol}
    if rule.protocol in ("tcp", "udp"):
        found["FromPort"], found["ToPort"] = _span(rule)
    elif rule.protocol in ("icmp", "icmpv6"):
        found["FromPort"] = -1 if rule.first is None else rule.first
        found["ToPort"] = -1 if rule.last is None else rule.last
    if rule.kind is SourceKind.CIDR:
        six = ":" in rule.source
        found["Ipv6Ranges" if six else "IpRanges"] = [{"CidrIpv6" if six else "CidrIp": rule.source}]
        return found
    source = {_KEY_OF[rule.kind]: rule.source}
    if rule.account:
        source["UserId"] = rule.account
    found[_LIST_OF[rule.kind]] = [source]
    return found


def _one(source: Dict[str, str]) -> str:
    return "[{" + ",".join(f"{name}={item}" for name, item in source.items()) + "}]"


def rule_command(rule: SecurityGroupRule, *, authorize: bool) -> str:
    """The command that adds the rule, or takes it away: by its values, so that it can be read."""
    words = []
    for key, value in permission(rule).items():
        words.append(f"{key}={_one(value[0]) if isinstance(value, list) else value}")
    verb = "authorize" if authorize else "revoke"
    return (
        f"aws ec2 {verb}-security-group-{way(rule)} --group-id {rule.group_id} "
        f"--ip-permissions '{','.join(words)}'"
    )
