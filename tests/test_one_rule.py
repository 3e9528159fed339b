"""One rule for verdicts: every surface that shows a certificate draws the same conclusion from it."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from chaoskit.adapter import BadAdapter, Promise
from chaoskit.certify import certificate as certificates
from chaoskit.fixture import ChaosCertificate
from chaoskit.model import Verdict
from chaoskit.registry import adapter as read_adapter
from chaoskit.search.result import Coverage
from chaoskit.show import pages
from tests.test_certificate import FENCE, PROMISED, finding, made

pytestmark = pytest.mark.requirement("C4")
HOLDS, VIOLATED, UNKNOWN = Verdict.HOLDS, Verdict.VIOLATED, Verdict.UNKNOWN
POWER = {"durable": Promise("synced", "https://example.org", power=True)}
RAN = {
    name: Coverage(states=9, complete=True)
    for name in ("process", "torn", "power-ext4", "zombie", "recovery")
}

CUT = {"process": Coverage(states=30, possible=50, cut_short=True, complete=False)}
HARDLY_TRIED = {"process": Coverage(states=4, possible=410, cut_short=True, complete=False)}


def result(claims, **more):
    return made(claims, **{"coverage": RAN, **more})


# What was measured and found -> the verdict that every surface must show.
TABLE = {
    "held": (result({"durable": {"process": HOLDS}}), HOLDS),
    "broken": (result({"durable": {"process": VIOLATED}}, findings=(finding(),)), VIOLATED),
    "hazard": (
        result(
            {"durable": {"process": HOLDS}, "atomic": {"process": VIOLATED}},
            findings=(finding("atomic", None),),
        ),
        HOLDS,
    ),
    "only hazards, nothing promised": (
        result({"durable": {"process": VIOLATED}}, promises={}, findings=(finding("durable", None),)),
        UNKNOWN,
    ),
    "without any fault": (
        result({"durable": {"process": HOLDS, "undisturbed": VIOLATED}}, findings=(finding(),)),
        VIOLATED,
    ),
    "a doubt": (result({"durable": {"process": HOLDS}}, unknown=("a fault did not fire",)), UNKNOWN),
    "an unknown cell": (result({"durable": {"process": HOLDS, "torn": UNKNOWN}}), UNKNOWN),
    "nothing ran": (result({"durable": {}}, coverage={"process": Coverage()}), UNKNOWN),
    "a promise that nothing measured": (
        result({"durable": {"process": HOLDS}}, promises={**PROMISED, "prefix": PROMISED["durable"]}),
        UNKNOWN,
    ),
    "no requested tier tests the promise": (
        result({"durable": {"process": HOLDS}}, promises=FENCE, coverage={"process": RAN["process"]}),
        UNKNOWN,
    ),
    "a promise of which another tier was not requested": (
        result(
            {"durable": {"process": HOLDS}},
            promises={**PROMISED, **FENCE},
            coverage={"process": RAN["process"]},
        ),
        HOLDS,
    ),
    "a promise about power, of which only a hazard tier ran": (
        result({"durable": {"power-ext4": VIOLATED}}, coverage={"power-ext4": RAN["power-ext4"]}),
        UNKNOWN,
    ),
    "a promise about power, broken": (
        result({"durable": {"power-ext4": VIOLATED, "process": HOLDS}}, promises=POWER),
        VIOLATED,
    ),
    "no promises declared": (
        result(
            {"durable": {"process": HOLDS}, "prefix": {}},
            promises={**PROMISED, "prefix": PROMISED["durable"]},
            declares_promises=False,
        ),
        HOLDS,
    ),
    "a kind of violation that the promise does not cover": (
        result({"durable": {"process": VIOLATED}}, findings=(finding("durable", None),)),
        HOLDS,
    ),
    "time ran out": (result({"durable": {"process": HOLDS}}, coverage=CUT), UNKNOWN),
    "time ran out, and that is accepted": (
        result({"durable": {"process": HOLDS}}, coverage=CUT, accepts_incomplete=True),
        HOLDS,
    ),
    "time ran out too early to accept anything": (
        result({"durable": {"process": HOLDS}}, coverage=HARDLY_TRIED, accepts_incomplete=True),
        UNKNOWN,
    ),
}


def fixture_passes(certificate):
    try:
        ChaosCertificate(certificate, ()).assert_holds()
    except pytest.fail.Exception:
        return False
    return True


def verdict_of_junit(certificate):
    suite = ET.fromstring(pages.junit(certificate))  # noqa: S314 - our own text
    if suite.get("failures") != "0":
        return VIOLATED
    return UNKNOWN if suite.get("errors") != "0" else HOLDS


def verdict_of_badge(certificate):
    words = json.loads(pages.badge_json(certificate))["message"].split()[0].strip(",")
    return {"holds": HOLDS, "unknown": UNKNOWN}.get(words, VIOLATED)


@pytest.mark.parametrize("name", TABLE)
def test_every_surface_shows_the_same_verdict(name, tmp_path):
    certificate, expected = TABLE[name]
    path = tmp_path / "c.json"
    path.write_text(certificates.encode(certificate))
    whole = json.loads(path.read_text())
    signs = {sign for row in whole["cells"].values() for sign in row.values()}
    surfaces = {
        "verdict": certificate.verdict,
        "headline": Verdict(certificate.headline().split()[0].strip(":;")),
        "json": Verdict(whole["verdict"]),
        "loaded": certificates.load(path).verdict,
        "junit": verdict_of_junit(certificate),
        "badge": verdict_of_badge(certificate),
        "cells": VIOLATED if "VIOLATED" in signs else expected,
        "markdown": Verdict(pages.markdown(certificate).split("\n")[0].split(": ")[-1]),
    }
    assert surfaces == dict.fromkeys(surfaces, expected)
    assert fixture_passes(certificate) == (expected is HOLDS)
    assert bool(whole["reasons"]) == (expected is UNKNOWN), "UNKNOWN always has a reason"


@pytest.mark.parametrize("name", TABLE)
def test_comparing_with_a_certificate_that_holds_finds_every_worse_one(name, chaoskit, tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(certificates.encode(TABLE["held"][0]))
    after.write_text(certificates.encode(TABLE[name][0]))
    code = {HOLDS: 0, VIOLATED: 1, UNKNOWN: 3}[TABLE[name][1]]
    assert chaoskit("compare", "before.json", "after.json").returncode == code


def test_a_verdict_in_the_json_is_not_believed(tmp_path):
    path = tmp_path / "c.json"
    whole = json.loads(certificates.encode(TABLE["broken"][0]))
    path.write_text(json.dumps({**whole, "verdict": "HOLDS"}))
    assert certificates.load(path).verdict is VIOLATED


def test_one_more_broken_promise_is_found_by_comparing(chaoskit, tmp_path):
    both = {"durable": {"process": VIOLATED}, "atomic": {"process": VIOLATED}}
    promises = {**PROMISED, "atomic": PROMISED["durable"]}
    before = result({**both, "atomic": {"process": HOLDS}}, promises=promises, findings=(finding(),))
    after = result(both, promises=promises, findings=(finding(), finding("atomic")))
    for name, certificate in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(certificates.encode(certificate))
    assert chaoskit("compare", "before.json", "after.json").returncode == 1


def test_a_headline_counts_what_was_measured():
    partly = TABLE["a promise of which another tier was not requested"][0]
    assert partly.headline() == "HOLDS 1 of its 2 promises (fenced not measured)"
    assert TABLE["no promises declared"][0].headline() == "HOLDS 1 basic claim"


def test_a_control_character_in_a_message_leaves_junit_well_formed():
    bad = msgspec.structs.replace(finding(), message="\x00 \x1b[31m \ud800")
    suite = ET.fromstring(pages.junit(result({"durable": {"process": VIOLATED}}, findings=(bad,))))  # noqa: S314
    assert "\\x1b[31m" in suite.find(".//failure").text


# --- what an adapter declares

STORE = """
import json
from pathlib import Path

class Base:
    def open(self, directory): self.directory = Path(directory)
    def close(self): pass
    def save(self, session, state): (self.directory / session).write_text(json.dumps(state))
    def load(self, session):
        path = self.directory / session
        return json.loads(path.read_text()) if path.exists() else None
"""
KEPT = '{"durable": ("kept", "docs")}'


def declared(tmp_path: Path, text: str):
    (tmp_path / "a.py").write_text(STORE + text)
    return read_adapter(f"{tmp_path}/a.py:T").promises


@pytest.mark.parametrize(
    "text",
    [
        f"class T(Base):\n    promises = {KEPT}\n",
        f"class T(Base):\n    promises: dict = {KEPT}\n",
        f"class T(Base):\n    other = promises = {KEPT}\n",
        f"class T(Base):\n    promises = other = {KEPT}\n",
        'KEPT = ("kept", "docs")\nclass T(Base):\n    promises = {"durable": KEPT}\n',
        f"ALL = {KEPT}\nclass T(Base):\n    promises = ALL\n",
        # The last base class that declares them does not win: Python's order does.
        (
            f"class R(Base):\n    promises = {{}}\nclass A(R): pass\nclass B(R): promises = {KEPT}\n"
            "class T(A, B): pass\n"
        ),
    ],
)
def test_promises_are_read_as_python_sees_them(tmp_path, text):
    assert set(declared(tmp_path, text)) == {"durable"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('class T(Base):\n    promises = {"durabel": ("kept", "docs")}\n', "did you mean 'durable'"),
        ('class T(Base):\n    promises = {"resumes": ("kept", "docs")}\n', "no claim about stores 'resumes'"),
        ('class T(Base):\n    promises = {"durable": ("", "docs")}\n', "expected .text, where."),
        ('class T(Base):\n    promises = ["durable"]\n', "expected a dictionary"),
        ("class T(Base):\n    promises = None\n", "expected a dictionary"),
        (f"class T(Base):\n    promises = {{}}\n    promises |= {KEPT}\n", "one plain dictionary"),
        ('class T(Base):\n    promises = {}\n    promises["durable"] = ("k", "d")\n', "one plain dictionary"),
        (f"class T(Base): pass\nT.promises = {KEPT}\n", "one plain dictionary"),
        (f"class T(Base):\n    @property\n    def promises(self): return {KEPT}\n", "one plain dictionary"),
        (f"class T(Base):\n    if True:\n        promises = {KEPT}\n", "one plain dictionary"),
        (f"class T(Base):\n    def __init__(self): self.promises = {KEPT}\n", "one plain dictionary"),
        ("class T(Base):\n    saves = '8'\n", "saves of T: expected an integer of at least 1"),
        ("class T(Base):\n    saves = 0\n", "saves of T: expected an integer of at least 1"),
        ("class T(Base):\n    items_per_call = None\n", "items_per_call of T: expected an integer"),
        ("class T(Base):\n    deadline = 1e999\n", "deadline of T: expected a number of seconds"),
    ],
)
def test_what_cannot_be_read_is_refused_and_not_ignored(tmp_path, text, message):
    with pytest.raises(BadAdapter, match=message):
        declared(tmp_path, text)


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("def delete(self, session): pass", "has delete, but not in its own file"),
        ('promises = {"atomic": ("kept", "docs")}', r"declares \[\], but Python sees \['atomic'\]"),
    ],
)
def test_what_another_file_adds_to_an_adapter_is_not_missed(tmp_path, chaoskit, base, message):
    (tmp_path / "elsewhere.py").write_text(f"class Elsewhere:\n    {base}\n")
    (tmp_path / "a.py").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom elsewhere import Elsewhere\n{STORE}"
        "class T(Base, Elsewhere):\n    saves = 3\n"
    )
    done = chaoskit("certify", "./a.py:T", "--tiers", "process", "--jobs", "1")
    assert done.returncode == 2, done.stderr
    assert re.search(message, done.stderr), done.stderr


# A store that loses a save between unlink and rename, and never through a torn write.
GAP = (
    STORE
    + """
class T(Base):
    promises = {"durable": ("kept", "docs")}
    saves = 4
    def save(self, session, state):
        path, aside = self.directory / session, self.directory / "aside"
        aside.write_text(json.dumps(state))
        path.unlink(missing_ok=True)
        aside.rename(path)
"""
)


def test_findings_belong_to_the_tiers_that_were_requested(tmp_path, chaoskit):
    (tmp_path / "a.py").write_text(GAP)
    torn = chaoskit("certify", "./a.py:T", "--tiers", "torn", "--jobs", "1", "--json", "torn.json")
    made = json.loads((tmp_path / "torn.json").read_text())
    assert (torn.returncode, made["findings"]) == (0, [])
    assert {tier for tiers in made["claims"].values() for tier in tiers} == {"torn"}
    assert "promise broken" not in torn.stdout
    assert chaoskit("certify", "./a.py:T", "--tiers", "process", "--jobs", "1").returncode == 1


def test_a_cell_of_which_too_little_was_tried_does_not_hold():
    assert TABLE["time ran out"][0].sign("durable", "process") == "unknown"
    assert TABLE["time ran out, and that is accepted"][0].sign("durable", "process") == "holds"
