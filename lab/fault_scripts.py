"""Pieces of shell that several faults of a host are made of."""

from __future__ import annotations

from cluster.ports import DEFAULT_EPHEMERAL_PORTS


def nft(rules: str, hook: str = "input", policy: str = "accept") -> str:
    chain = f"chain {hook} {{\ntype filter hook {hook} priority 0; policy {policy};\n{rules}\n}}"
    return f"nft -f - <<'EOF'\ntable inet filter {{\n{chain}\n}}\nEOF\n"


NO_NFT = "nft flush ruleset"
AS_UFW_DOES = 'iif "lo" accept\nct state established,related accept\ntcp dport { 22, 29500 } accept\n'
GLOO_PORTS = f"tcp dport {DEFAULT_EPHEMERAL_PORTS}"


def server(port: int, answer: str, name: str = "server") -> str:
    """A process that listens on a port of every address, and what it does with a connection `c`."""
    pid = f"/run/fault-{name}.pid"
    return (
        "python3 - >/dev/null 2>&1 <<'EOF' &\n"
        "import os, socket\n"
        f"s = socket.create_server(('', {port}), backlog=512)\n"
        f"open('{pid}', 'w').write(str(os.getpid()))\n"
        "kept = []\n"
        "while True:\n"
        "    c = s.accept()[0]\n"
        f"    {answer}\n"
        "EOF\n"
        f"until [ -s {pid} ]; do sleep 0.02; done\n"
    )


NO_SERVER = "for f in /run/fault-*.pid; do if [ -e $f ]; then kill $(cat $f); rm $f; fi; done\n"
