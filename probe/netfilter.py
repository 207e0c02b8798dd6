"""This host's own firewall rules, or the proof that there are none.

"The tool is missing" is not "there are no rules": the kernel is asked directly (nf_tables
over netlink, the legacy tables through /proc), and a tool is only needed to print rules.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

AF_NETLINK = 16
NETLINK_NETFILTER = 12
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_NFT_SUBSYSTEM = 10
_NFT_MSG_NEWTABLE = 0
_NFT_MSG_GETTABLE = 1
_NFTA_TABLE_NAME = 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port id
_GENERIC = struct.Struct("=BBH")  # nfgenmsg: family, version, resource id
_FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}

# Errors that say "this kernel has no nf_tables", so it cannot hold its rules either.
_NO_NF_TABLES = (errno.EINVAL, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EOPNOTSUPP)

_LEGACY = (
    ("/proc/net/ip_tables_names", ("iptables-legacy-save", "iptables-save")),
    ("/proc/net/ip6_tables_names", ("ip6tables-legacy-save", "ip6tables-save")),
)
_TOOL_TIMEOUT_S = 5.0
# A row must stay small; the rules of a container host with hundreds of services are cut, and said to be.
MAX_RULES_CHARACTERS = 64 * 1024


@dataclass(frozen=True)
class Firewall:
    """rules "" with error None is proof of an empty firewall; rules None = nothing could be read.

    Rules beside an error are a part of what there is.
    """

    rules: Optional[str]
    error: Optional[str]


def read_firewall() -> Firewall:
    """All rules of this network namespace as text."""
    texts: List[str] = []
    errors: List[str] = []
    for source in (_nf_tables, _legacy_tables):
        found, failed = source()
        texts.extend(found)
        errors.extend(failed)
    rules = "\n".join(texts)
    if len(rules) > MAX_RULES_CHARACTERS:
        errors.append(f"the ruleset has {len(rules)} characters, only {MAX_RULES_CHARACTERS} are kept")
        rules = rules[:MAX_RULES_CHARACTERS]
    return Firewall(rules=rules if rules or not errors else None, error="; ".join(errors) or None)


def nf_tables() -> Tuple[str, ...]:
    """Names of all nf_tables tables ("inet filter"), straight from the kernel.

    Raises:
        OSError: EPERM without CAP_NET_ADMIN; one of EINVAL, EPROTONOSUPPORT,
            EAFNOSUPPORT, EOPNOTSUPP where the kernel has no nf_tables.
    """
    with socket.socket(AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as sock:
        sock.settimeout(_TOOL_TIMEOUT_S)
        body = _GENERIC.pack(socket.AF_UNSPEC, 0, 0)
        kind = _NFT_SUBSYSTEM << 8 | _NFT_MSG_GETTABLE
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, _NLM_F_REQUEST_DUMP, 1, 0) + body)
        tables: List[str] = []
        while True:
            if _read_messages(sock.recv(1 << 16), tables):
                return tuple(tables)


def _read_messages(data: bytes, tables: List[str]) -> bool:
    """Append the tables of one datagram; True after the last message of the dump."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        payload = data[offset + _HEADER.size : offset + length]
        if kind in (_NLMSG_ERROR, _NLMSG_DONE):
            number = -struct.unpack_from("=i", payload)[0] if len(payload) >= 4 else 0
            if number:
                raise OSError(number, os.strerror(number))
            return True
        if kind == (_NFT_SUBSYSTEM << 8 | _NFT_MSG_NEWTABLE):
            family = _GENERIC.unpack_from(payload)[0]
            name = _attribute(payload[_GENERIC.size :], _NFTA_TABLE_NAME)
            tables.append(f"{_FAMILIES.get(family, family)} {name}")
        offset += (length + 3) & ~3
    return False


def _attribute(data: bytes, wanted: int) -> str:
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if kind & 0x3FFF == wanted:
            return data[offset + 4 : offset + length].rstrip(b"\0").decode(errors="replace")
        offset += max(4, (length + 3) & ~3)
    return "?"


def _nf_tables() -> Tuple[List[str], List[str]]:
    try:
        tables = nf_tables()
    except OSError as error:
        if error.errno in _NO_NF_TABLES:
            return [], []
        return [], [f"nf_tables: {_reason(error)}"]
    if not tables:
        return [], []
    why = f"nf_tables holds {', '.join(tables)}"
    if _tool("nft") is None:
        texts = _through_iptables(tables)
        if texts:
            return texts, [f"{why}, but nft is not installed: only what iptables made was read"]
    return _run(("nft",), ("-a", "list", "ruleset"), why)  # with the handles that a remedy names


def _through_iptables(tables: Sequence[str]) -> List[str]:
    """Tables that iptables-nft made (Docker's, for one), as its own tools print them.

    They leave out every other table, and say nothing of what they leave out, so what comes
    back is never the whole.
    """
    texts: List[str] = []
    for family, prefix in (("ip", "iptables"), ("ip6", "ip6tables")):
        if any(table.split()[0] == family for table in tables):
            tool = f"{prefix}-nft-save" if _tool(f"{prefix}-nft-save") else f"{prefix}-save"
            version, _ = _run((tool,), ("-V",), "")
            if any("nf_tables" in text for text in version):  # the other kind reads legacy tables
                found, _ = _run((tool,), (), "")
                texts += [text for text in found if text]
    return texts


def _legacy_tables() -> Tuple[List[str], List[str]]:
    texts: List[str] = []
    errors: List[str] = []
    for path, tools in _LEGACY:
        try:
            with open(path, encoding="ascii") as file:
                names = file.read().split()
        except FileNotFoundError:  # the module is not loaded, so it holds no rules
            continue
        except OSError as error:
            errors.append(f"{path}: {_reason(error)}")
            continue
        if names:
            found, failed = _run(tools, (), f"legacy tables {', '.join(names)} of {path} exist")
            texts += found
            errors += failed
    return texts, errors


def _run(tools: Sequence[str], arguments: Sequence[str], why: str) -> Tuple[List[str], List[str]]:
    """(texts, errors) of the first tool that this host has."""
    path = next(filter(None, map(_tool, tools)), None)
    if path is None:
        return [], [f"{why}, but {' and '.join(tools)} is not installed, so its rules are unknown"]
    try:
        done = subprocess.run([path, *arguments], capture_output=True, timeout=_TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], [f"{why}, but {path} failed: {error}"]
    if done.returncode != 0:
        detail = done.stderr.decode(errors="replace").strip()[-200:]
        return [], [f"{why}, but {path} ended with {done.returncode}: {detail}"]
    return [done.stdout.decode(errors="replace").strip()], []


def _tool(name: str) -> Optional[str]:
    return shutil.which(name, path=_search_path())


def _reason(error: OSError) -> str:
    hint = " (needs root)" if error.errno in (errno.EPERM, errno.EACCES) else ""
    return f"{error.strerror or error}{hint}"


def _search_path() -> str:
    """PATH and the administrator's folders, which an ordinary user's PATH lacks."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
