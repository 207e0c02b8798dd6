"""What forgets idle connections between the nodes, as EC2's connection tracking does after its time-out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.fault_scene import Scene

# 1: connections whose beginning was not seen are taken up in their middle. It holds for the whole
# namespace, and matters there to none but those that are forgotten.
_LOOSE = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose"


@dataclass(frozen=True)
class ForgetsIdle:
    """Connections of these pairs are forgotten after `after_s`, and what comes later on them vanishes."""

    pairs: tuple[tuple[int, int], ...]
    after_s: int

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        between = [
            f"ip saddr {scene.lab.node(source).address} ip daddr {scene.lab.node(target).address}"
            for pair in self.pairs
            for source, target in (pair, pair[::-1])
        ]
        rules = "\n".join(f'{ends} ct timeout set "brief"\n{ends} ct state invalid drop' for ends in between)
        policy = f"protocol tcp;\nl3proto ip;\npolicy = {{ established: {self.after_s} }};"
        chain = f"chain idle {{\ntype filter hook forward priority -10;\n{rules}\n}}"
        try:
            scene.on_network(["tee", _LOOSE], "0")
            scene.on_network(
                ["nft", "-f", "-"], f"table ip idle {{\nct timeout brief {{\n{policy}\n}}\n{chain}\n}}\n"
            )
            yield
        finally:
            scene.on_network(["nft", "-f", "-"], "table ip idle\ndelete table ip idle\n")
            scene.on_network(["tee", _LOOSE], "1")
