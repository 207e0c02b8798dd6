"""The few Linux calls that Python 3.11 does not wrap, each raising OSError with what was asked.

Only thin wrappers: policy (which namespaces, in which order) lives in `lab.sandbox` and `lab.image`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture: it came after the tables were unified
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    """Move this process (its children, for CLONE_NEWPID) into new namespaces."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, flags: int = 0) -> None:
    """Move this THREAD into the namespace that `fd` (a file of /proc/PID/ns, or a pidfd) stands for."""
    _check(_libc.setns(fd, flags), f"setns({flags:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); an empty `kind` or `data` is passed as NULL."""
    done = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(done, f"mount {kind or 'bind'} {source} on {target}")


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _check(_libc.umount2(target.encode(), flags), f"unmount {target}")


def mount_setattr(target: str, attributes: int) -> None:
    """Set mount attributes on `target` and every mount below it (Linux 5.12 and later).

    Unlike a bind remount it keeps flags that a user namespace must not clear, so one call
    makes any tree of the host read-only, as root and rootless alike.
    """
    change = _MountAttr(attr_set=attributes)
    done = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(target.encode()),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(change),
        ctypes.c_size_t(ctypes.sizeof(change)),
    )
    _check(done, f"mount_setattr {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """pivot_root(2)."""
    machine = platform.machine()
    if machine not in _SYS_PIVOT_ROOT:
        raise OSError(errno.ENOSYS, f"pivot_root: its number is not known for {machine}")
    done = _libc.syscall(
        ctypes.c_long(_SYS_PIVOT_ROOT[machine]),
        ctypes.c_char_p(new_root.encode()),
        ctypes.c_char_p(put_old.encode()),
    )
    _check(done, f"pivot_root {new_root}")


def set_host_name(name: str) -> None:
    """sethostname(2), in the UTS namespace of this process."""
    encoded = name.encode()
    _check(_libc.sethostname(encoded, ctypes.c_size_t(len(encoded))), f"sethostname {name}")


def set_parent_death_signal(number: int) -> None:
    """Ask for signal `number` when the THREAD that started this process ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), "prctl PR_SET_PDEATHSIG")


def adopt_orphans(adopt: bool = True) -> None:
    """Become the parent of whatever descendant loses its own (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    done = _libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(adopt), 0, 0, 0)
    _check(done, "prctl PR_SET_CHILD_SUBREAPER")


def drop_from_bounding_set(capability: int) -> None:
    """Make sure that no program started from here ever holds `capability`; unknown numbers are fine."""
    done = _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    if done != 0 and ctypes.get_errno() != errno.EINVAL:
        _check(done, f"prctl PR_CAPBSET_DROP {capability}")
