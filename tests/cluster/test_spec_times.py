"""The times of a proof fit into each other."""

from __future__ import annotations

from cluster.node_config import NodeConfig
from cluster.settings import TorchSource
from cluster.spec import ClusterSpec
from cluster.spec_times import INSTALL_LIMIT_S, install_limit_s, least_proof_timeout_s


def test_the_wait_outlasts_launch_boot_mesh_torch_collective_and_the_referee() -> None:
    """Each part at its limit, one after the other."""
    assert least_proof_timeout_s(300, TorchSource.INDEX) == 300 + 180 + 300 + 900 + 300 + 150
    assert least_proof_timeout_s(300, TorchSource.WHEELHOUSE) == 2130
    assert least_proof_timeout_s(300, TorchSource.IMAGE) == 1230


def test_the_defaults_fit_with_room() -> None:
    """An empty context must not stand at the edge of its own check."""
    spec = ClusterSpec()
    assert spec.proof_timeout_s - least_proof_timeout_s(spec.deadline_s, spec.torch_source) == 570


def test_nodes_that_are_told_nothing_hold_to_the_same_limit() -> None:
    """NodeConfig's own default is for a configuration written by hand."""
    default = NodeConfig(cluster="", run="", nodes=2, master_port=29500, region="", bucket="", role_id="")
    assert default.install_limit_s == INSTALL_LIMIT_S == install_limit_s(TorchSource.INDEX)
    assert install_limit_s(TorchSource.IMAGE) == 0
