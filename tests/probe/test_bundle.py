"""The bundle: whole or not at all, for its owner alone, readable back, and without one secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.report import ConnectOutcome, Diagnosis, NodeReport, Verdict
from probe import bundle, bundle_sources
from probe.bundle_sources import Piece
from probe.capture import Capture
from probe.place import DiscoverError
from probe.redact import Redactor
from tests.diagnosis import builders
from tests.probe.test_capture import SYN, packets
from tests.probe.test_redact import PLACES, RANDOM

CHECKOUT = Path(__file__).resolve().parents[2]

PASSED = Diagnosis(verdict=Verdict.PASS)


def row(**given_: object) -> NodeReport:
    return NodeReport(run="r", member_id="i-0", address="10.0.0.4", name="n0", **given_)  # type: ignore[arg-type]


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            assert (entry.uname, entry.gname, entry.mode) == ("", "", 0o600)
            found[entry.name.partition("/")[2]] = file.read()
    return found


def test_it_holds_the_verdict_the_row_and_the_host(tmp_path: Path) -> None:
    """Every source has a file or a line in contents.txt that says why not; the mode is 0600."""
    path = tmp_path / "b.tar.gz"
    bundle.write_bundle(str(path), PASSED, row(), Capture(), {"GLOO_SOCKET_IFNAME": "ens5", "API_KEY": "abc"})
    assert path.stat().st_mode & 0o777 == 0o600
    found = contents(path)
    said = found["contents.txt"].decode()
    for name in [n for n, _ in bundle_sources.COMMANDS + bundle_sources.FILES] + ["sysctl.txt", "row.json"]:
        assert f"{name}: " in said
        assert name in found or f"\n{name}: whole\n" not in said
    assert b"net.ipv4.ip_local_port_range = " in found["sysctl.txt"]
    assert b"127.0.0.1" in found["addresses.txt"]
    assert found["environment.txt"] == b"API_KEY=[removed: value of API_KEY]\nGLOO_SOCKET_IFNAME=ens5\n"
    assert b"environment.txt: value of API_KEY" in found["removed.txt"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_capture_that_is_cut_is_not_called_whole(tmp_path: Path) -> None:
    """contents.txt says what is missing of it."""
    capture = Capture()
    capture.cut = "the kernel dropped 7 packets that were not read in time"
    bundle.write_bundle(str(tmp_path / "b.tar.gz"), PASSED, row(), capture, {})
    said = contents(tmp_path / "b.tar.gz")["contents.txt"].decode()
    assert "no payload; the kernel dropped 7 packets that were not read in time\n" in said


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("there", "exists and is not overwritten"),
        ("none/b.tar.gz", "there is no folder"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_anything_is_probed(
    tmp_path: Path, target: str, words: str
) -> None:
    """With the path and the next step."""
    (tmp_path / "there").write_text("mine")
    with pytest.raises(DiscoverError, match=words):
        bundle.check_target(str(tmp_path / target))
    assert (tmp_path / "there").read_text() == "mine"


def test_a_name_taken_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """The file that came first stays, and nothing half-written is left."""
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        bundle.write_bundle(str(path), PASSED, None, Capture(), {})
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["b.tar.gz"]


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while it is written: no file of any name."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "addfile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bundle.write_bundle(str(tmp_path / "b.tar.gz"), PASSED, None, Capture(), {})
    assert os.listdir(tmp_path) == []


SOURCES = [name for name, _ in bundle_sources.COMMANDS + bundle_sources.FILES] + ["log-bootstrap.log"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(
    source=st.sampled_from(SOURCES),
    place=st.sampled_from(sorted(PLACES)),
    random=RANDOM.filter(lambda t: any(c.isdigit() for c in t) and any(c.isalpha() for c in t)),
    before=st.text(max_size=40),
)
def test_no_planted_secret_is_in_any_file(
    monkeypatch: pytest.MonkeyPatch, source: str, place: str, random: str, before: str
) -> None:
    """Whatever the source, the shape and the text before it: the secret is in none of the files."""
    shape, around = PLACES[place]
    secret = shape.format(random.upper() if "key id" in place else random)
    text = f"{before}\n{around.format(secret)}\nplain line\n"
    monkeypatch.setattr(
        bundle, "read_host", lambda: iter([Piece(source, text), Piece("bad", "", around.format(secret))])
    )
    environ = {"TRAINER_TOKEN": f"tok-{random}", "NOTE": around.format(secret)}
    files = bundle.pack(PASSED, row(failures=()), Capture(), environ, Redactor(environ))
    for name, data in files.items():
        assert secret.encode() not in data, name
        assert f"tok-{random}".encode() not in data, name
    assert place == "private key that is cut" or b"plain line" in files[source]


def test_the_capture_keeps_the_ports_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own listeners, every port that was tried, and MASTER_PORT."""
    asked: list[set[int]] = []
    capture = Capture()

    def pcap(ports: set[int]) -> bytes:
        asked.append(set(ports))
        return b""

    monkeypatch.setattr(capture, "pcap", pcap)
    tried = builders.probe(1, 40123, ConnectOutcome.CONNECTED)
    bundle.pack(PASSED, row(master_port=29500, probes=(tried,)), capture, {}, Redactor({}))
    assert asked == [{29500, 40123}]


@pytest.mark.lab
def test_the_bundles_of_two_members_are_judged_together(tmp_path: Path) -> None:
    """`check --bundle` on both members, then `check --merge`: PASS, and a capture holds SYNs."""
    meet = tmp_path / "meet"
    meet.mkdir()
    members = []
    for number in (2, 3):
        command = [
            *(
                sys.executable,
                "-m",
                "probe",
                "check",
                "--meet",
                str(meet),
                "--nodes",
                "2",
                "--run",
                "together",
            ),
            *("--address", f"127.0.0.{number}", "--no-collective", "--timeout-s", "30"),
            *("--bundle", str(tmp_path / f"{number}.tar.gz")),
        ]
        members.append(
            subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    for member in members:
        out, err = member.communicate(timeout=90)
        assert member.returncode == 0, (out, err)
        assert b"see its removed.txt" in err
    files = [str(tmp_path / f"{number}.tar.gz") for number in (2, 3)]
    merged = subprocess.run(
        [sys.executable, "-m", "probe", "check", "--json", "--merge", *files],
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
        timeout=60,
    )
    answer = json.loads(merged.stdout)
    assert (merged.returncode, answer["verdict"], len(answer["pairs"])) == (0, "PASS", 2), merged.stderr
    if os.geteuid() == 0:
        seen = packets(contents(tmp_path / "2.tar.gz")["capture.pcap"])
        assert any(flags & SYN for _, _, flags, _ in seen)


def test_a_check_that_cannot_take_its_place_still_leaves_a_bundle(tmp_path: Path) -> None:
    """Exit status 2 as without a bundle, and the reason is in it."""
    target = tmp_path / "b.tar.gz"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "probe",
            "check",
            "--hostfile",
            str(tmp_path / "none"),
            "--bundle",
            str(target),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    found = contents(target)
    assert b"UNKNOWN" in found["verdict.txt"]
    assert str(tmp_path / "none").encode() in found["verdict.json"]
    assert b"row.json: this member has no row" in found["contents.txt"]
