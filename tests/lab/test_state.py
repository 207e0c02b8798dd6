"""lab.state: the state file, and telling a living lab from a dead one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from lab import state
from lab.state import LabState, NodeState

NODE = NodeState(rank=0, instance_id="i-1", address="10.42.0.4", name="ip-10-42-0-4", pid=3, log="/l")


def lab_state(folder: Path) -> LabState:
    """A lab with one node."""
    return LabState(
        pid=1,
        caller_pid=2,
        endpoint_url="http://127.0.0.1:1",
        region="us-east-1",
        started_at="2025-01-31T12:00:00Z",
        log_dir="/logs",
        state_dir=str(folder),
        rootless=True,
        search_path="/bin",
        environment={"AWS_REGION": "us-east-1"},
        nodes=(NODE,),
    )


def test_state_of_a_living_lab_is_read_back_whole(tmp_path: Path) -> None:
    """While the folder is held, what was written is what is read, and no draft is left."""
    held = state.lock(tmp_path)
    assert held is not None
    state.write(tmp_path / state.FILE_NAME, lab_state(tmp_path))
    assert state.read(tmp_path) == lab_state(tmp_path)
    assert os.listdir(tmp_path) == [state.FILE_NAME]
    os.close(held)


def test_file_that_nobody_holds_is_no_lab(tmp_path: Path) -> None:
    """A killed lab's file stays behind; it is not taken for a running one, whatever its pid is now."""
    state.write(tmp_path / state.FILE_NAME, lab_state(tmp_path))
    assert state.read(tmp_path) is None


def test_two_looks_at_once_are_no_lab(tmp_path: Path) -> None:
    """One that looks at the folder is not taken for the lab by another that does."""
    state.write(tmp_path / state.FILE_NAME, lab_state(tmp_path))
    looking = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert state.read(tmp_path) is None
    os.close(looking)


def test_folder_is_held_once(tmp_path: Path) -> None:
    """A second lab cannot have the folder until the first lets go."""
    first = state.lock(tmp_path)
    assert first is not None
    assert state.lock(tmp_path) is None
    os.close(first)
    second = state.lock(tmp_path)
    assert second is not None
    os.close(second)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}'])
def test_unreadable_file_is_no_lab(tmp_path: Path, text: str) -> None:
    """A file that is cut off or of another shape is no lab, and no error either."""
    held = state.lock(tmp_path)
    assert held is not None
    (tmp_path / state.FILE_NAME).write_text(text)
    assert state.read(tmp_path) is None
    os.close(held)


def test_node_is_found_by_rank(tmp_path: Path) -> None:
    """A rank that is not there is told with those that are."""
    assert lab_state(tmp_path).node(0) == NODE
    with pytest.raises(LookupError) as caught:
        lab_state(tmp_path).node(4)
    assert str(caught.value) == "there is no node 4; nodes are numbered by rank: 0 to 0"
