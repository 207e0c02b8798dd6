"""Known messages that are no cause of the catalogue: what each one says, for the reader of the answer."""

from __future__ import annotations

from diagnosis.logs.kinds import Kind
from diagnosis.logs.signature import Signature

_USE = "the program's own call is refused, and the network has no part in it: "


def _note(trigger: str, says: str, pattern: str = "") -> Signature:
    """A row whose trigger is the message, unless a pattern says more."""
    return Signature(Kind.NOTE, trigger, pattern or _literal(trigger), says=says)


def _literal(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _/" else "\\" + char for char in text)


SIGNATURES = (
    # --- Gloo -------------------------------------------------------------------------------------
    _note("Backing context not fully connected", "a context was forked from a mesh that is not whole"),
    _note(
        "duplicate buffer for slot", "one context is used by two operations at once: a defect of the caller"
    ),
    _note("Slot overflow: delta", "one collective has too many parts for Gloo"),
    _note("Invalid timeout", _USE + "a time-out is negative"),
    _note(
        "underlying store doesn't support",
        "GLOO_ENABLE_STORE_V2_API needs a store that this one is not: unset the variable",
    ),
    _note("Falling back to default options", "options of another type were passed and are not used"),
    _note("Cannot use ReduceOp.", _USE + "Gloo has no such operation for this type (AVG: before torch 2.8)"),
    _note(
        "unsupported device type",
        _USE + "Gloo takes tensors of the CPU",
        r"ProcessGroupGloo::\w+: unsupported device",
    ),
    _note("Invalid scalar type", _USE + "Gloo does not know this type of number"),
    _note("monitored_barrier is only implemented for GLOO", _USE + "monitored_barrier needs a Gloo group"),
    # --- the store --------------------------------------------------------------------------------
    _note("queues not implemented on legacy", "queues need the libuv store: unset USE_LIBUV=0"),
    _note("Invalid payload size. size", "a value for the store is larger than 8 MiB"),
    _note("Too many keys with multi_get", "one request asks the store for too many keys"),
    _note(
        "expected to be bound to port",
        "the launcher passed a listening socket of another port",
        r"listen fd \d+ is bound",
    ),
    _note(
        "The server socket has failed to bind",
        "the store cannot listen: EACCES is a port below 1024, EADDRNOTAVAIL an address of another host",
        r"server socket has failed to bind\. port: \d+, .{0,40}code: -(?!98\b)\d",
    ),
    # --- the program ------------------------------------------------------------------------------
    _note("No rendezvous handler for", _USE + "init_method has an unknown scheme"),
    _note("port must have value from 0 to", _USE + "the port is no port"),
    _note("initialize the default process group twice", _USE + "init_process_group was called twice"),
    _note(
        "Default process group has not been initialized",
        _USE + "init_process_group was not called, or failed",
    ),
    _note("The specified group name has already been created", _USE + "the group's name is taken"),
    _note("No device associated with the default pg", _USE + "split_group needs a device; use new_group"),
    _note("reduce communication hook required", _USE + "this DDP hook is refused on Gloo"),
    _note(
        "The value of TORCH_DISTRIBUTED_DEBUG must be",
        _USE + "TORCH_DISTRIBUTED_DEBUG is OFF, INFO or DETAIL",
    ),
    _note("environment variable cannot be parsed", _USE + "TORCH_CPP_LOG_LEVEL has no such level"),
    _note(
        "The port number of the rendezvous endpoint",
        _USE + "the rendezvous endpoint has no port from 0 to 65535",
    ),
    _note("group's rank should be within", _USE + "new_group was given a rank that the world does not have"),
    # --- launchers --------------------------------------------------------------------------------
    _note("Error waiting on exit barrier", "agents of other nodes did not finish in time"),
    _note(
        "Setting OMP_NUM_THREADS environment variable",
        "torchrun sets one thread a process: slow, and no failure",
    ),
)
