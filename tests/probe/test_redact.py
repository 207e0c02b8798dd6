"""What is secret goes, wherever it stands; what the diagnosis is made of stays."""

from __future__ import annotations

import base64
import json
import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from probe.redact import Redactor

RANDOM = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)

# Where a secret stands -> (shape of the secret, the text around it). No name of a variable announces it.
PLACES = {
    "AWS access key id": ("AKIA{0:.16}", "creds {} in use"),
    "session key id": ("ASIA{0:.16}", '{{"AccessKeyId":"{}"}}'),
    "AWS secret key": ("{0}", "aws_secret_access_key = {}"),
    "secret in JSON": ("{0}", '{{"SecretAccessKey": "{}", "Code": "Success"}}'),
    "token in YAML": ("{0}", "auth_token: {}"),
    "password in a query": ("{0}", "jdbc:postgresql://db/x?user=u&password={}&ssl=1"),
    "user and password in a URL": ("{0}", "pip index https://user:{}@pypi.example/simple"),
    "authorization header": ("{0}", "> Authorization: AWS4-HMAC-SHA256 Signature={}"),
    "bearer": ("{0}", "curl -H 'X: Bearer {}' https://x"),
    "presigned URL": ("{0}", "GET /b?X-Amz-Expires=60&X-Amz-Signature={}&x=1"),
    "security token in a URL": ("{0}", "https://s3/x?X-Amz-Security-Token={}"),
    "option of a command": ("{0}", "wandb login --api-key {}"),
    "GitHub token": ("ghp_{0}", "remote: {}"),
    "Hugging Face token": ("hf_{0}", "login({})"),
    "JSON web token": ("eyJ{0}.eyJ{0}.{0}", "cookie {}"),
    "private key": ("{0}", "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----"),
    "private key in JSON": ("{0}", '"-----BEGIN RSA PRIVATE KEY-----\\n{}\\n-----END RSA PRIVATE KEY-----"'),
    "private key that is cut": ("{0}", "-----BEGIN PRIVATE KEY-----\n{}"),
    "e-mail address": ("{0}@example.org", "From: {}"),
    "home folder": ("{0}", "/home/{}/train.py: line 3"),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@given(random=RANDOM)
def test_a_planted_secret_is_gone_and_listed(place: str, random: str) -> None:
    """Nothing of it is left, the list names its kind, and the list does not hold it either."""
    assume(any(c.isdigit() for c in random) and any(c.isalpha() for c in random))
    shape, around = PLACES[place]
    secret = shape.format(random.upper() if "key id" in place else random)
    redactor = Redactor({})
    said = redactor.text("journal.txt", around.format(secret))
    assert secret not in said
    assert sum(redactor.removed.values()) >= 1
    assert "journal.txt: " in redactor.listing()
    assert secret not in redactor.listing()


@given(key=st.binary(min_size=30, max_size=30), token=st.binary(min_size=90, max_size=200))
def test_text_as_random_as_a_key_is_gone_without_any_word_beside_it(key: bytes, token: bytes) -> None:
    """40 characters of base64 are what an AWS secret key looks like; a session token is longer."""
    for secret in (base64.b64encode(key).decode(), base64.b64encode(token).decode()):
        assume(
            all(any(c in kind for c in secret) for kind in (string.ascii_lowercase, string.ascii_uppercase))
        )
        assume(any(c.isdigit() for c in secret))
        assert secret.rstrip("=") not in Redactor({}).text("x", f"it is {secret} here")


@given(value=st.text(string.printable, min_size=6, max_size=60))
def test_the_value_of_a_secret_variable_is_gone_everywhere(value: str) -> None:
    """Its name says so; then the value goes from logs, too, plain or as JSON writes it."""
    assume(
        value.strip() == value
        and "[removed" not in value
        and value not in "it was  in JSON value of DB_PASSWORD"
    )
    redactor = Redactor({"DB_PASSWORD": value, "HOME": "/root"})
    plain = redactor.text("log", f"it was <{value}>")
    as_json = redactor.text("row", json.dumps({"said": f"<{value}>"}))
    assert f"<{value}>" not in plain
    assert json.dumps(f"<{value}>")[1:-1] not in as_json
    assert json.loads(as_json)["said"].startswith("<[removed: value of DB_PASSWORD]")
    assert (
        redactor.variables("env", {"DB_PASSWORD": value}) == "DB_PASSWORD=[removed: value of DB_PASSWORD]\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SYN-SENT 0 1 10.20.0.4:41000 10.20.0.7:29500 users:((\"python3\",pid=77,fd=5))",
        "inet 10.20.0.4/20 brd 10.20.15.255 scope global ens5; inet6 fe80::8ff:fe00:1/64",
        "instance i-0abcdef1234567890 of sg-0123456789abcdef0 in vpc-0a1b2c3d4e5f60718",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/tcp/pair.cc:144] no error",
        "GLOO_SOCKET_IFNAME=ens5 MASTER_ADDR=ip-10-20-0-4.ec2.internal WORLD_SIZE=4",
        "net.ipv4.ip_local_port_range = 32768 60999",
        "ssh ubuntu@ip-10-20-0-4.ec2.internal",
        "2026-01-01T00:00:00Z rank 3 store key 0/rank_3 is missing",
    ],
)  # fmt: skip
def test_what_a_diagnosis_is_made_of_stays(text: str) -> None:
    """Addresses, ports, ids, interfaces, digests and messages are untouched."""
    redactor = Redactor({"RANK": "3", "AWS_REGION": "us-east-1"})
    assert redactor.text("x", text) == text
    assert redactor.listing().endswith("nothing\n")
