"""Attacks on the command line, as data: arguments, and words of the one line that answers."""

from __future__ import annotations

import base64
import zlib

import msgspec

from chaoskit import __version__, repro
from chaoskit.model import Repro, Schedule

LONG = "x" * 100_000
STEERING = "\x1b]0;owned\x07\x1b[2J"
HUGE = str(2**64)


def token_of(body: bytes) -> str:
    """A token with this content and a correct checksum."""
    packed = zlib.compress(zlib.crc32(body).to_bytes(4, "big") + body)
    return "ck1-" + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def naming(scenario: str, **more: object) -> str:
    """A well-formed token for this scenario."""
    usual = {"mutant": None, "seed": 0, "schedule": Schedule(), "signature": ""}
    return repro.encode(Repro(version=__version__, scenario=scenario, **{**usual, **more}))


def packed(**fields: object) -> str:
    return token_of(msgspec.msgpack.encode({"version": __version__, **fields}))


# Every value of every option that cannot be used. Nothing is run.
OPTIONS = [
    *((("run", "payments", "--deadline", value), "greater than 0") for value in (
        "nan", "inf", "-inf", "0", "-1", "1e999", "abc", "", "0x10", "1,5")),
    *((("run", "payments", "--seed", value), "expected an integer from 0") for value in (
        HUGE, "-1", "1.5", "nan", "", "١٢", "1_000", " 7", "0x7", "9" * 5000)),
    *((("run", "payments", "--for", value), "expected") for value in (
        "0s", "0", "-5s", "nan", "inf", "10d", "", "1e9h", "s", "9" * 400 + "h", "٣s")),
    *((("run", "payments", "--runs", value), "--runs") for value in ("0", "-1", "x", "nan", "")),
    *((("run", "payments", "--jobs", value), "--jobs") for value in ("0", "-1", "x", "99999999")),
    *((("run", "payments", "--depth", value), "--depth") for value in ("0", "3", "x")),
    *((("run", "payments", "--agents", value), "agents") for value in ("0", "-3", "x", "5")),
    *((("run", "payments", "--fault", value), "no fault") for value in (
        "", "kil", "kill,,kill", STEERING, ",")),
    (("run", "payments", "--points", "everywhere"), "'everywhere' is not one of"),
    (("run", "payments", "--dir", ""), "expected a path, got nothing"),
    (("run", "payments", "--json", ""), "expected a file"),
    (("run", "payments", "--json", "/nowhere/at/all.json"), "cannot write"),
    (("run", "payments", "--json", "/"), "cannot write"),
    (("run", "payments", "--store", ""), "no store"),
    (("run", "payments", "--store", "postgresql://h/x"), "no store"),
    (("run", "payments", "--mutant", ""), "no mutant"),
    (("run", "payments", "--mutant", LONG), "no mutant"),
    (("run", "payments", "--pass-env", "NOT_SET_ANYWHERE"), "variable that is set"),
    (("run", "payments", "--pass-env", "A=B"), "variable that is set"),
    (("run", "payments", "--no-such-option"), "No such option"),
    (("run",), "Missing argument"),
    (("certify", "payments", "--tiers", ""), "no tier"),
    (("certify", "payments", "--tiers", "process,proces"), "no tier 'proces'"),
    (("certify", "langgraph-sqlite", "--with", ""), "no target"),
    (("certify", "langgraph-sqlite", "--with", "-rfile.txt"), "expected a requirement"),
    (("certify", "langgraph-sqlite", "--with", "--index-url=http://evil.example"), "expected a requirement"),
    (("certify", "langgraph-sqlite", "--with", "../evil"), "expected a requirement"),
    (("certify", "langgraph-sqlite", "--fail-on", "nothing"), "'nothing' is not one of"),
    (("scoreboard", "--dir", ""), "expected a path, got nothing"),
    (("list", "secrets"), "'secrets' is not one of"),
    (("list", "points"), "needs a scenario"),
    (("explain", ""), "no"),
    (("explain", STEERING), "no"),
    (("frobnicate",), "No such command"),
]  # fmt: skip

# Names of any shape: of a scenario, of a target, of a saved result.
NAMES = [
    "", " ", ".", "..", "/", ":", "::", "a:", ":a", "a:b:c", "a.b:c", "payments\n", "payments ", "Payments",
    "-", "x.py:", "x.py:X", "/etc/passwd:X", "/dev/zero.py:X", "os:system", "../../x.py:X", "target:",
    "target:nothing", "target:a@b", "@", "#", "a#b", "%s%n", "é", "\udc80", STEERING, LONG,
]  # fmt: skip

# Text that is not a token, or one that asks for too much.
TOKENS = [
    ("", "no findings are recorded"),
    ("ck1-", "damaged"),
    ("ck1-%%%%", "damaged"),
    ("ck1-é", "damaged"),
    ("ck1-" + "A" * 200_000, "at most"),
    ("ck2-AAAA", "no findings are recorded"),
    (token_of(b""), "does not contain the version"),
    (token_of(b"\x91" * 64), "does not contain the version"),
    (token_of(b"\x91" * 4000 + b"\x01"), "does not contain the version"),
    (token_of(b"\x81" * 3000), "does not contain the version"),
    (token_of(msgspec.msgpack.encode({"version": STEERING})), "made by chaoskit"),
    (token_of(b"\x00" * 3_000_000), "does not contain the version"),
    (packed(), "does not contain a schedule"),
    (packed(scenario=1), "does not contain a schedule"),
    (packed(scenario="payments", mutant=None, seed=0, schedule={"faults": 7}, signature=""), "schedule"),
    (
        packed(scenario="payments", mutant=None, seed=0, signature="", schedule={"faults": [{"type": "x"}]}),
        "no fault",
    ),
    (naming("./evil.py:X"), "would import ./evil.py:X"),
    (naming("evil:X"), "would import evil:X"),
    (naming("os:system"), "would import os:system"),
    (naming("target:./evil.py:X"), "would import ./evil.py:X"),
    (naming("target:langgraph-sqlite@evil==1"), "would install evil==1"),
    (naming("target:evil:X@evil==1"), "would import evil:X, and install evil==1"),
    (naming("payments", store="sqlite://somewhere.example/x"), "would connect to"),
    (naming(f"{STEERING}:X"), "would import"),
    (naming("payments", mutant="no-such"), "no mutant"),
    (naming("payments", seed=-1), "expected a seed"),
    (naming("payments", deadline=float("nan")), "seconds"),
    (naming("payments", deadline=float("inf")), "seconds"),
    (naming("payments", deadline=-1.0), "seconds"),
    (naming("tree", agents=10**15), "tree"),
    (naming("payments", agents=3), "does not support"),
]  # fmt: skip

# Files that are not what they should be: for compare, report and scoreboard --render.
FILES = [
    b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1}',
    b'{"schema": 99, "verdict": "HOLDS"}',
    b'{"verdict": "HOLDS"' + b" " * 10_000_000, b"\x80\x04\x95", b'{"a":' * 5000,
]  # fmt: skip

# Found by somebody who had not seen these tests: well-formed tokens whose content fits nothing.
FOUND = [
    (naming("payments", signature="[/nope]x"), 0),
    (naming("payments", signature=f"{STEERING}\x9b31m[bold red]x"), 0),
    *(
        (packed(scenario="payments", mutant=None, seed=0, signature="", schedule={"faults": [fault]}), 2)
        for fault in (
            {"type": "power", "point": {"name": "w", "nth": 1, "op": 5}, "profile": "ext4", "way": "zz"},
            {"type": "kill", "point": {"name": "x", "nth": -1, "op": -7}, "when": "half"},
            {"type": "disk", "point": {"name": "x", "nth": 1}, "error": "ENOSPC"},
        )
    ),
]
