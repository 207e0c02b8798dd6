"""The places that a launcher's variables name, looked up and tried from this node."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Iterator, Mapping, Optional, Tuple

from diagnosis.report import Contact, Meeting
from probe.outcome import reach
from probe.preflight import resolve

# torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py
RENDEZVOUS_PORT = 29400


def read_contacts(environ: Mapping[str, str]) -> Tuple[Contact, ...]:
    """Each named place; blocks for a slow resolver and a dead port (6 s and 2 s)."""
    return tuple(_tried(contact) for contact in _named(environ))


def _named(environ: Mapping[str, str]) -> Iterator[Contact]:
    host, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    store = (host, int(port)) if host.strip() and port.isdigit() else None
    if store is not None:
        yield Contact(meeting=Meeting.STORE, host=store[0], port=store[1])
    endpoint = _endpoint(environ.get("PET_RDZV_ENDPOINT", ""))
    if endpoint is not None and endpoint != store:
        yield Contact(meeting=Meeting.RENDEZVOUS, host=endpoint[0], port=endpoint[1])


def _endpoint(text: str) -> Optional[Tuple[str, int]]:
    """torchrun's HOST[:PORT], from the variable that its option --rdzv-endpoint reads."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdigit():
        host, port = text.strip(), str(RENDEZVOUS_PORT)
    host = host.strip("[]")
    return (host, int(port)) if host else None


def _tried(contact: Contact) -> Contact:
    addresses, error = resolve(contact.host)
    contact = dataclasses.replace(contact, addresses=addresses, error=error)
    if not addresses:
        return contact
    seen = asyncio.run(reach(addresses[0], contact.port))
    return dataclasses.replace(contact, address=addresses[0], outcome=seen.outcome, errno=seen.errno)
