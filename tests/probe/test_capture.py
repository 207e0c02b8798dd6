"""The capture sees connections being opened and refused on its ports, and nothing else."""

from __future__ import annotations

import re
import socket
import struct
import time

import pytest

from probe import capture as capture_module
from probe.capture import Capture

SYN, RST = 0x02, 0x04


def packets(pcap: bytes) -> list[tuple[int, int, int, int]]:
    """(source port, destination port, flags, captured bytes) of every TCP packet."""
    assert struct.unpack_from("=IHH", pcap) == (0xA1B2C3D4, 2, 4)
    found, offset = [], 24
    while offset < len(pcap):
        _, _, kept, _ = struct.unpack_from("=IIII", pcap, offset)
        data = pcap[offset + 16 : offset + 16 + kept]
        header = (data[0] & 15) * 4
        source, destination = struct.unpack_from("!HH", data, header)
        found.append((source, destination, data[header + 13], kept))
        offset += 16 + kept
    return found


def refused_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.lab
def test_a_refused_handshake_is_in_the_capture_and_other_ports_are_not() -> None:
    """The SYN and the RST of the asked port; a connection elsewhere and its payload are left out."""
    with socket.create_server(("127.0.0.1", 0)) as other, Capture() as capture:
        assert capture.problem == ""
        time.sleep(0.1)
        port = refused_port()
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
        with socket.create_connection(other.getsockname()) as client:
            client.sendall(b"a secret payload")
            other.accept()[0].close()
        time.sleep(0.3)
    pcap = capture.pcap({port})
    seen = packets(pcap)
    assert {(source == port, destination == port) for source, destination, _, _ in seen} == {
        (False, True),
        (True, False),
    }
    assert any(flags & SYN and destination == port for _, destination, flags, _ in seen)
    assert any(flags & RST and source == port for source, _, flags, _ in seen)
    elsewhere = capture.pcap({other.getsockname()[1] if other.fileno() >= 0 else 0})
    assert b"a secret payload" not in elsewhere + pcap


@pytest.mark.lab
def test_a_capture_that_is_not_whole_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came after the last packet that is kept is missing, and the bundle must not call it whole."""
    monkeypatch.setattr(capture_module, "_MOST_PACKETS", 1)
    with Capture() as capture, socket.socket() as client:
        with pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", refused_port()))
        deadline = time.monotonic() + 20
        while not capture._packets and time.monotonic() < deadline:
            time.sleep(0.01)
    assert capture.cut == "only the first 1 packets were kept"


@pytest.mark.lab
def test_packets_that_the_kernel_dropped_are_told() -> None:
    """Nobody reads, and the smallest buffer there is fills up."""
    with capture_module._open() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        for _ in range(100):
            with socket.socket() as client, pytest.raises(ConnectionRefusedError):
                client.connect(("127.0.0.1", refused_port()))
        assert re.match("the kernel dropped [1-9]", Capture()._missing(unread))


def test_where_it_is_not_permitted_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user gets no capture, and the reason."""

    def refuse(*_: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with Capture() as capture:
        pass
    assert capture.problem == "no capture: Operation not permitted; it needs root or CAP_NET_RAW"
