"""Takes secrets and personal names out of text, and remembers what it took without keeping it.

Three ways, from the surest to the widest: values that are known to be secret (those of variables
whose names say so), wherever they stand; shapes that only secrets have; and values beside a word
that announces one. Addresses, host names and ids of EC2 stay: the diagnosis is made of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Callable, Dict, List, Mapping, Pattern, Tuple

SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS(?:W|PHRASE|_|$)|PASSWD|_PWD$|KEY|CREDENTIAL|AUTH|COOKIE|SIGNATURE|DSN", re.IGNORECASE
)
"""A variable with such a name: its value is secret, whatever it is."""

SHORTEST_LEARNED = 6
"""A shorter value ("1", "true", "tcp") stands in too many places that are no secret."""

SHORTEST_SEEN = 12
"""A value that was taken for its shape or place alone, and is shorter, may be an ordinary word elsewhere."""

_WORD = (
    r"(?:secret|token|passw(?:or)?d|passphrase|pwd|api[-_]?key|access[-_]?key|private[-_]?key|client[-_]?key|"
    r"account[-_]?key|credentials?|signature|cookie)"
)
_MASKED = "[removed: "
_MASK = _MASKED + "{}]"

# What it is, and what it looks like; a group named `kept` stays in front.
_SHAPES: Tuple[Tuple[str, Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, flags))
    for kind, pattern, flags in (
        (
            "private key",
            r"-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        ("URL credentials", r"(?P<kept>\w+://)[^\s/@\"']+@", 0),
        ("authorization", r"(?P<kept>(?:proxy-)?authorization[\"']?\s*[:=]\s*)[^\r\n\"']+", re.IGNORECASE),
        ("bearer token", r"(?P<kept>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE),
        (
            "signed URL",
            r"(?P<kept>\bX-Amz-(?:Signature|Credential|Security-Token)=)[^&\s\"']+",
            re.IGNORECASE,
        ),
        ("signed URL", r"(?P<kept>[?&](?:Signature|AWSAccessKeyId|sig|token)=)[^&\s\"']+", re.IGNORECASE),
        ("AWS access key id", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", 0),
        ("JSON web token", r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?", 0),
        (
            "vendor token",
            r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{16,}|npm_\w{20,})",
            0,
        ),
        ("vendor token", r"\b(?:sk-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|dapi[0-9a-f]{30,})", 0),
        (
            "value of a secret's name",
            rf"(?P<kept>\b[\w.-]*{_WORD}[\w.-]*[\"']?\s*[:=]\s*[\"']?)(?!\[removed)[^\s\"',;&}}]+",
            re.IGNORECASE,
        ),
        ("value of a secret's option", rf"(?P<kept>--[\w-]*{_WORD}[\w-]*\s+)(?!\[removed)\S+", re.IGNORECASE),
        ("e-mail address", r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.(?!internal\b|local\b)[A-Za-z]{2,}\b", 0),
        ("home folder", r"(?P<kept>/(?:home|Users)/)[^/\s\"':,;]+", 0),
    )
)
# 40 characters are an AWS secret key; longer ones a session token. An id or a digest in hex is neither.
_RANDOM = re.compile(r"(?<![\w/+=.-])(?:[A-Za-z0-9/+]{40}|[A-Za-z0-9/+]{64,}={0,2})(?![\w/+=-])")
_PARTS = re.compile(r"[\s,;&=:@]|\\n")  # a header's fields, a key's lines (in JSON's writing, too)
_PERSONAL = ("e-mail address", "home folder")
_CLASSES = tuple(re.compile(pattern) for pattern in ("[a-z]", "[A-Z]", "[0-9]"))


class Redactor:
    """removed: (source, kind) -> how often.

    What was taken out once is known from then on: a second pass over all texts finds it where no word
    announces it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.removed: Counter[Tuple[str, str]] = Counter()
        self._known: Dict[str, str] = {}
        for name, value in environ.items():
            if SECRET_NAME.search(name):
                self.learn(value, f"value of {name}")

    def learn(self, value: str, kind: str) -> None:
        """From now on this value is taken out wherever it stands, in JSON's writing, too."""
        for written in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
            if len(written) >= SHORTEST_LEARNED:
                self._known[written] = kind

    def text(self, source: str, text: str) -> str:
        """The text without what is secret or personal. source: where it comes from, for the list."""
        for value in sorted(self._known, key=len, reverse=True):
            count = text.count(value)
            if count:
                self.removed[source, self._known[value]] += count
                text = text.replace(value, _MASK.format(self._known[value]))
        for kind, shape in _SHAPES:
            text = shape.sub(self._hide(source, kind), text)
        return _RANDOM.sub(self._hide_random(source), text)

    def variables(self, source: str, environ: Mapping[str, str]) -> str:
        """NAME=value lines; the whole value goes where the name says that it is secret."""
        lines: List[str] = []
        for name, value in sorted(environ.items()):
            if SECRET_NAME.search(name) and value:
                self.removed[source, f"value of {name}"] += 1
                lines.append(f"{name}={_MASK.format('value of ' + name)}")
            else:
                lines.append(self.text(source, f"{name}={value}"))
        return "\n".join(lines) + "\n"

    def listing(self) -> str:
        """What was taken out of what, and how often; never the value."""
        rows = [f"{count:6}  {source}: {kind}" for (source, kind), count in sorted(self.removed.items())]
        head = "Removed before packing: how often, from which file, what. The values are nowhere in here.\n\n"
        return head + ("\n".join(rows) if rows else "nothing") + "\n"

    def _hide(self, source: str, kind: str) -> Callable[[re.Match[str]], str]:
        def hide(found: re.Match[str]) -> str:
            kept = found.groupdict().get("kept") or ""
            value = found.group()[len(kept) :]
            if value.startswith(_MASKED):
                return found.group()
            self.removed[source, kind] += 1
            for part in [value] if kind in _PERSONAL else _PARTS.split(value):
                if len(part) >= SHORTEST_SEEN and not part.startswith("-----"):
                    self.learn(part, kind)
            return kept + _MASK.format(kind) + ("@" if kind == "URL credentials" else "")

        return hide

    def _hide_random(self, source: str) -> Callable[[re.Match[str]], str]:
        def hide(found: re.Match[str]) -> str:
            if not all(kind.search(found.group()) for kind in _CLASSES):
                return found.group()
            self.removed[source, "random text as long as a key"] += 1
            return _MASK.format("random text as long as a key")

        return hide
