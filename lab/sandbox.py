"""Namespaces that die with the process that made them, as root and rootless alike.

The tree is: caller -> guard -> init. The guard makes the namespaces and gets a signal when the
caller dies, however it dies; the init is PID 1 of a new PID namespace and is killed when the guard
dies. When a PID namespace's init goes, the kernel kills all that is left in it, daemons with a
session of their own included; network and mount namespaces have no name anywhere, so they go with
their last process.

A user namespace is made only for those who lack the rights themselves. Beware: the parent-death
signal fires when the *thread* that started the child ends, so call from a thread that stays.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable, List, Optional, Sequence, TypeVar

from lab import syscalls

T = TypeVar("T")

_CAP_NET_ADMIN = 12
_CAP_SYS_ADMIN = 21
_USERNS_LIMIT = Path("/proc/sys/user/max_user_namespaces")
_USERNS_DEBIAN = Path("/proc/sys/kernel/unprivileged_userns_clone")
_USERNS_APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")


# Debian keeps ip and nft where an ordinary user's PATH does not lead.
_SYSTEM_TOOLS = ("/usr/sbin", "/sbin")


def search_path() -> str:
    """PATH with the folders of the system's tools at its end."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_TOOLS])


class SandboxError(RuntimeError):
    """This machine does not let the lab make the namespaces it needs."""


def effective_capabilities() -> int:
    """The effective capabilities of this process, as the kernel's bit mask."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def needs_user_namespace() -> bool:
    """Whether this process lacks the rights to make network and mount namespaces by itself."""
    wanted = 1 << _CAP_SYS_ADMIN | 1 << _CAP_NET_ADMIN
    return os.geteuid() != 0 or effective_capabilities() & wanted != wanted


def explain_refusal(
    error: OSError, *, apparmor: Optional[str], limit: Optional[str], debian: Optional[str]
) -> str:
    """What to tell someone whose kernel refused a namespace; the settings are the files' text or None."""
    if limit is not None and limit.strip() == "0":
        why = "user.max_user_namespaces is 0"
        way = "sudo sysctl user.max_user_namespaces=15000"
    elif debian is not None and debian.strip() == "0":
        why = "kernel.unprivileged_userns_clone is 0"
        way = "sudo sysctl kernel.unprivileged_userns_clone=1"
    elif apparmor is not None and apparmor.strip() == "1":
        why = (
            "kernel.apparmor_restrict_unprivileged_userns is 1, which takes the rights out of user namespaces"
        )
        way = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    elif error.errno == errno.ENOSPC:
        why = "the limit of namespaces is reached (user.max_*_namespaces)"
        way = "sudo sysctl user.max_user_namespaces=15000 user.max_net_namespaces=15000"
    else:
        why = "in a container this is its seccomp profile or a missing capability"
        way = "start the container with --privileged"
    return (
        f"the kernel refused to make a namespace ({error.strerror}): {why}; "
        f"either run the lab as root with CAP_SYS_ADMIN and CAP_NET_ADMIN (sudo), or allow it: {way}"
    )


def _refused(error: OSError) -> SandboxError:
    def text(path: Path) -> Optional[str]:
        try:
            return path.read_text()
        except OSError:
            return None

    return SandboxError(
        explain_refusal(
            error, apparmor=text(_USERNS_APPARMOR), limit=text(_USERNS_LIMIT), debian=text(_USERNS_DEBIAN)
        )
    )


def die_with_parent(number: int = signal.SIGKILL, parent: Optional[int] = None) -> None:
    """Get signal `number` when the parent's thread ends; exit now if `parent` is gone already.

    Without a `parent` it serves as a `preexec_fn`, which the parent waits for.
    """
    syscalls.set_parent_death_signal(number)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _become_root_of_a_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1\n")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1\n")


def contain() -> int:
    """Make the namespaces and fork: returns 0 in the init, and the init's pid in the guard.

    Call in a fresh, single-threaded process: CLONE_NEWUSER demands it. The init sees the host's
    file system and network (nodes get their own later), and dies with the guard.

    Raises:
        SandboxError: the kernel forbids it; names the ways out.
    """
    try:
        if needs_user_namespace():
            _become_root_of_a_user_namespace()
        syscalls.unshare(syscalls.CLONE_NEWPID)
    except OSError as error:
        raise _refused(error) from error
    alive, hold = os.pipe()
    child = os.fork()
    if child:
        # `hold` stays open in the guard for as long as it lives; nobody else may keep it.
        os.close(alive)
        os.set_inheritable(hold, False)
        return child
    os.close(hold)
    syscalls.set_parent_death_signal(signal.SIGKILL)
    if select.select([alive], [], [], 0)[0]:  # end of file: the guard died before the line above
        os._exit(1)
    os.close(alive)
    try:
        # here and not in the guard, which could not remove a folder that it sees mounted
        syscalls.unshare(syscalls.CLONE_NEWNS)
        syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_SLAVE)
    except OSError as error:
        raise _refused(error) from error
    return 0


def check() -> None:
    """Try, in a child, all that the lab needs of the kernel.

    Raises:
        SandboxError: what is refused and how to allow it.
    """
    done = subprocess.run(
        [sys.executable, "-m", "lab.sandbox"],
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "PATH": search_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SandboxError(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no namespaces")


def host_pid() -> int:
    """This process's pid as the file system of the host shows it, also from inside a PID namespace."""
    return int(os.readlink("/proc/self"))


def new_network_namespace() -> int:
    """A file descriptor that alone holds a new, empty network namespace."""
    ready_r, ready_w = os.pipe()
    done_r, done_w = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(done_w)
            syscalls.unshare(syscalls.CLONE_NEWNET)
            os.write(ready_w, str(host_pid()).encode())
            os.read(done_r, 1)
            code = 0
        finally:
            os._exit(code)
    os.close(ready_w)
    os.close(done_r)
    try:
        pid = os.read(ready_r, 32)
        if not pid:
            raise SandboxError("the kernel refused a network namespace; run `fullmesh doctor` to see why")
        return os.open(f"/proc/{int(pid)}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_r)
        os.close(done_w)
        os.waitpid(child, 0)


def in_namespace(fd: int, act: Callable[[], T]) -> T:
    """Call `act` in a thread of its own that has joined `fd`'s network namespace.

    Sockets keep the namespace they were made in, so what `act` opens stays usable here.
    """
    results: List[T] = []
    errors: List[BaseException] = []

    def work() -> None:
        try:
            syscalls.setns(fd, syscalls.CLONE_NEWNET)
            results.append(act())
        except BaseException as error:  # noqa: BLE001 - carried over to the calling thread
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def run_in(fd: int, argv: Sequence[str], text: str) -> None:
    """Run a command in `fd`'s network namespace with `text` as its input.

    Raises:
        RuntimeError: the command failed; says what it printed.
        FileNotFoundError: the command is not installed.
    """

    def join() -> None:
        syscalls.setns(fd, syscalls.CLONE_NEWNET)

    done = subprocess.run(
        list(argv), input=text, capture_output=True, text=True, check=False, preexec_fn=join
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} failed with {done.returncode}: {done.stderr.strip()[:2000]}")


def _try_everything() -> None:
    child = contain()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    fd = new_network_namespace()
    run_in(fd, ["ip", "-batch", "-"], "link set lo up\n")
    run_in(fd, ["nft", "-c", "-f", "-"], "table ip t { chain c { ct state established accept\n}\n}\n")


if __name__ == "__main__":
    try:
        _try_everything()
    except FileNotFoundError as missing:
        sys.exit(f"{missing.filename} is not installed; run: sudo apt-get install nftables iproute2")
    except (SandboxError, RuntimeError, OSError) as error:
        sys.exit(str(error))
