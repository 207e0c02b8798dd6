"""Does the installed torch read a variable? Told by its files, without importing it.

getenv needs the name as it is written, ended by a NUL, among the read-only data of a library. That
a name is not there like this is no proof in three cases, in which nothing is told of it: it ends a
longer word (a linker lets strings share their ends), its beginning stands there as a constant of 16 or
32 bytes (a compiler may copy a short text that way), or not even `_CONTROL`, which every torch with Gloo
reads, is found, so that this build keeps names in another way.
"""

from __future__ import annotations

import glob
import importlib.util
import mmap
import os
import struct
import sys
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

_CONTROL = b"GLOO_SOCKET_IFNAME"
# Those that hold Gloo and torch.distributed first; a CUDA build has more.
_FIRST = ("libtorch_cpu.so", "libtorch_python.so", "libc10.so")
_OWN = ("libtorch*.so*", "libc10*.so*", "libgloo*.so*")
# Distributions keep Gloo outside of torch's folder.
_SYSTEM = ("/usr/lib/libgloo*.so*", "/usr/lib64/libgloo*.so*", "/usr/lib/*/libgloo*.so*")
# One look holds the interpreter's lock for about a millisecond, so that the mesh beside it goes on.
_WINDOW = 1 << 20
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_CONSTANTS = (16, 32)


def held_by_torch(names: Sequence[str]) -> Optional[Dict[str, bool]]:
    """Name -> whether torch's files hold it. One that cannot be told is left out.

    None: this Python has no torch, or its libraries cannot be read.
    """
    folders = _folders()
    paths = _libraries(folders)
    if not paths:
        return None
    wanted = {name.encode() for name in names}
    try:
        held, doubtful = _in_libraries(paths, wanted)
        if held != wanted:
            held |= _in_python(folders, wanted - held)
            if _CONTROL not in held and _CONTROL not in _in_libraries(paths, {_CONTROL})[0]:
                doubtful = wanted
    except (OSError, ValueError, struct.error):
        return None
    return {name.decode(): name in held for name in sorted(wanted) if name in held or name not in doubtful}


def _folders() -> List[str]:
    spec = importlib.util.find_spec("torch")
    return list(spec.submodule_search_locations or []) if spec else []


def _libraries(folders: Sequence[str]) -> List[str]:
    """torch's own, and a Gloo of its own where a distribution has one."""
    first = [os.path.join(folder, "lib", name) for folder in folders for name in _FIRST]
    there = [path for path in first if os.path.exists(path)]
    if not there:
        return []
    patterns = [os.path.join(folder, "lib", name) for folder in folders for name in _OWN]
    patterns += [os.path.join(sys.prefix, "lib", _OWN[-1]), *_SYSTEM]
    others = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return list(dict.fromkeys((*there, *others)))


def _in_python(folders: Sequence[str], names: Set[bytes]) -> Set[bytes]:
    """Those that a Python file of torch.distributed speaks of.

    Raises:
        OSError: one cannot be read.
    """
    found: Set[bytes] = set()
    for folder in folders:
        for parent, _, files in os.walk(os.path.join(folder, "distributed")):
            for file_name in files:
                if file_name.endswith(".py"):
                    with open(os.path.join(parent, file_name), "rb") as file:
                        text = file.read()
                    found |= {name for name in names if name in text}
    return found


def _in_libraries(paths: Sequence[str], names: Set[bytes]) -> Tuple[Set[bytes], Set[bytes]]:
    """(held by one of them, not certainly absent from all).

    Raises:
        OSError, ValueError, struct.error: no library of this kind of machine.
    """
    held: Set[bytes] = set()
    doubtful: Set[bytes] = set()
    for path in paths:
        missing = names - held
        if not missing:
            break
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            for start, end in _read_only(data):
                for name in missing:
                    hit = _hit(data, name, start, end)
                    if hit is True:
                        held.add(name)
                    elif hit is False:
                        doubtful.add(name)
    return held, doubtful


def _hit(data: mmap.mmap, name: bytes, start: int, end: int) -> Optional[bool]:
    """True: there by itself. False: it may be. None: not there."""
    beginning = name[: _CONSTANTS[0]]
    whole = name + b"\0"
    found: Optional[bool] = None
    for at in _places(data, beginning, start, end):
        if data[at : at + len(whole)] == whole:
            if data[at - 1] not in _WORD:
                return True
            found = False
        elif at % _CONSTANTS[0] == 0 and _same(data, name, at) in _CONSTANTS:
            found = False
    return found


def _places(data: mmap.mmap, text: bytes, start: int, end: int) -> Iterator[int]:
    place = start
    while place < end:
        at = data.find(text, place, min(end, place + _WINDOW + len(text)))
        if at < 0:
            place += _WINDOW
        else:
            yield at
            place = at + 1


def _same(data: mmap.mmap, name: bytes, at: int) -> int:
    """How many bytes of the name stand at that place."""
    return next((count for count, byte in enumerate(name) if data[at + count] != byte), len(name))


def _read_only(data: mmap.mmap) -> Iterator[Tuple[int, int]]:
    """Where the sections .rodata* lie (ELF-64, System V ABI, chapter 4)."""
    if data[: len(_ELF64_LITTLE)] != _ELF64_LITTLE:
        raise ValueError("not a 64-bit library of this machine")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + place * size) for place in range(count)]
    names = data[headers[names_at][4] : headers[names_at][4] + headers[names_at][5]]
    for name, _, _, _, offset, length in headers:
        if names[name:].startswith(b".rodata"):
            yield offset, offset + length
