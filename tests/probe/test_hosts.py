"""Slurm's short host names and the host file: what they name, and which line is this host."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from probe.hosts import (
    HostsError,
    expand_nodelist,
    hostfile_variables,
    job_hosts,
    own_lines,
    read_hostfile,
    slurm_variables,
)

TASK = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_NODELIST": "gpu[1-4]", "SLURM_NODEID": "3"}


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", "login"),
        ("gpu[01-03,7],login", "gpu01 gpu02 gpu03 gpu7 login"),
        ("a[8-10]", "a8 a9 a10"),
        ("a[098-101]-x", "a098-x a099-x a100-x a101-x"),
        ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ("ip-10-0-0-4,ip-10-0-0-[5-6]", "ip-10-0-0-4 ip-10-0-0-5 ip-10-0-0-6"),
    ],
)
def test_a_node_list_is_expanded(text: str, hosts: str) -> None:
    """Ranges keep the digits of their first number, and several in one name multiply."""
    assert expand_nodelist(text) == tuple(hosts.split())


@pytest.mark.parametrize("text", ["", "a[1-", "a[2-1]", "a[x]", "a[1-9999999]", "a b", "a]1["])
def test_what_is_no_node_list_is_refused(text: str) -> None:
    """The error names the list; nothing is guessed."""
    with pytest.raises(HostsError, match="node list"):
        expand_nodelist(text)


def test_a_task_of_slurm_has_a_launchers_variables() -> None:
    """The rank is the task's, and the first host is the master where the script names none."""
    assert slurm_variables(TASK, 29500) == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "3",
        "GROUP_WORLD_SIZE": "4",
        "MASTER_ADDR": "gpu1",
        "MASTER_PORT": "29500",
    }
    own = slurm_variables({**TASK, "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "31000"}, 29500)
    assert (own["MASTER_ADDR"], own["MASTER_PORT"]) == ("10.0.0.9", "31000")


def test_several_tasks_a_host_are_told_apart() -> None:
    """Task 5 of 8 on 4 hosts is the second one of the third host."""
    eight = {**TASK, "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "2"}
    found = slurm_variables(eight, 29500)
    assert [found[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")] == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"SLURM_NODELIST": ""}, "none of SLURM_STEP_NODELIST"),
        ({"SLURM_NTASKS": "2"}, "not a number of at least the step's 4 hosts"),
        ({"SLURM_NTASKS": "6"}, "6 tasks do not spread evenly over 4 hosts"),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(y)"}, "is not a list such as 2"),
        ({"SLURM_PROCID": "x"}, "SLURM_PROCID='x' is not a number"),
    ],
)
def test_a_step_that_cannot_be_told_is_refused(changed: dict[str, str], words: str) -> None:
    """Each error says what is wrong and what is allowed."""
    with pytest.raises(HostsError, match=words):
        slurm_variables({**TASK, **changed}, 29500)


def test_tasks_that_do_not_spread_evenly_are_counted_by_node() -> None:
    """Where Slurm tells how many tasks each node has, five on three hosts are three members."""
    uneven = {
        **TASK,
        "SLURM_STEP_NODELIST": "gpu[1-3]",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
        "SLURM_PROCID": "4",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "2",
    }
    found = slurm_variables(uneven, 29500)
    assert [found[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")] == ["4", "5", "1"]
    assert [found[name] for name in ("GROUP_RANK", "GROUP_WORLD_SIZE")] == ["2", "3"]
    second = slurm_variables({**uneven, "SLURM_NODEID": "1", "SLURM_PROCID": "3"}, 29500)
    assert second["LOCAL_WORLD_SIZE"] == "2"


def test_the_hosts_of_a_job_are_told_by_its_scheduler() -> None:
    """Slurm's list and LSF's pairs, each host once; without either nothing is known."""
    assert job_hosts({"SLURM_JOB_NODELIST": "n[1-2]"}) == ("n1", "n2")
    assert job_hosts({"LSB_MCPU_HOSTS": "batch1 1 n7 42 n8 42"}) == ("batch1", "n7", "n8")
    assert job_hosts({}) == ()


def test_a_host_file_is_read_line_by_line(tmp_path: Path) -> None:
    """slots=, comments and blank lines are ignored."""
    path = tmp_path / "hosts"
    path.write_text("# the cluster\nnode-0 slots=8\n\n10.0.0.5 slots=4 max_slots=8\nnode-2#last\n")
    assert read_hostfile(str(path)) == ("node-0", "10.0.0.5", "node-2")


@pytest.mark.parametrize(
    ("text", "words"),
    [("a\n", "names 1 hosts; a mesh has at least 2"), ("a\nb\na\n", "names a more than once")],
)
def test_a_host_file_that_makes_no_mesh_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """One host, or one host twice, is a typing error that is named."""
    (tmp_path / "hosts").write_text(text)
    with pytest.raises(HostsError, match=words):
        read_hostfile(str(tmp_path / "hosts"))


def test_a_host_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The error names the file and what it should hold."""
    with pytest.raises(HostsError, match=r"cannot read host file .*/none: No such file.*one host a line"):
        read_hostfile(str(tmp_path / "none"))


def test_the_own_line_gives_the_rank() -> None:
    """This host is found by its name; a file without it, or with two lines of it, is refused."""
    name = socket.gethostname()
    found = hostfile_variables(("203.0.113.1", "203.0.113.2", name), 31000)
    assert (found["RANK"], found["WORLD_SIZE"]) == ("2", "3")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("203.0.113.1", "31000")
    assert own_lines(("203.0.113.1", name.upper())) == [1]
    with pytest.raises(HostsError, match="none of the host file's 2 lines are this host"):
        hostfile_variables(("203.0.113.1", "203.0.113.2"), 29500)
    other = name.swapcase()
    with pytest.raises(HostsError, match="2 of the host file's 2 lines are this host"):
        hostfile_variables((name, other), 29500)
