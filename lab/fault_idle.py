"""What forgets idle connections between the nodes, as EC2's connection tracking does after its time-out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lab.fault_scene import Scene

_FOLDER = "/proc/sys/net/netfilter"
_TIMEOUT, _LOOSE = f"{_FOLDER}/nf_conntrack_tcp_timeout_established", f"{_FOLDER}/nf_conntrack_tcp_loose"
_AS_BEFORE = {_TIMEOUT: "432000", _LOOSE: "1"}  # the kernel's own, which a new namespace begins with


@dataclass(frozen=True)
class ForgetsIdle:
    """Connections of these pairs are forgotten after `after_s`, and what comes later on them vanishes."""

    pairs: tuple[tuple[int, int], ...]
    after_s: int

    @contextmanager
    def inject(self, scene: Scene) -> Iterator[None]:
        rules = "\n".join(
            f"ip saddr {scene.lab.node(source).address} ip daddr {scene.lab.node(target).address} "
            "ct state invalid drop"
            for pair in self.pairs
            for source, target in (pair, pair[::-1])
        )
        chain = f"chain idle {{\ntype filter hook forward priority -10;\n{rules}\n}}"
        try:
            _set(scene, {_TIMEOUT: str(self.after_s), _LOOSE: "0"})
            scene.on_network(["nft", "-f", "-"], f"table ip idle {{\n{chain}\n}}\n")
            yield
        finally:
            scene.on_network(["nft", "-f", "-"], "table ip idle\ndelete table ip idle\n")
            _set(scene, _AS_BEFORE)


def _set(scene: Scene, values: dict[str, str]) -> None:
    for path, value in values.items():
        scene.on_network(["tee", path], value)
