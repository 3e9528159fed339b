"""Certificates: how the verdict is derived, how two are compared, what each page shows."""

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from chaoskit.adapter import Adapter, Promise
from chaoskit.certify import certificate as certificates
from chaoskit.certify.certificate import Certificate, CertifiedFinding, promises_of
from chaoskit.model import Verdict
from chaoskit.search.result import Coverage
from chaoskit.show import pages

pytestmark = pytest.mark.requirement("C4")
HOLDS, VIOLATED, UNKNOWN = Verdict.HOLDS, Verdict.VIOLATED, Verdict.UNKNOWN
SOME = {"process": Coverage(states=9, confirmed=1, complete=True)}


def finding(claim="durable", promise="it is kept", **more):
    return CertifiedFinding(
        claim=claim,
        kind="lost",
        tier="process",
        fault="kill before",
        point="write x#1",
        repro="ck1-abc",
        message="save 2 was acknowledged, and <nothing> is there",
        promise=promise,
        where="https://example.org" if promise else None,
        **more,
    )


PROMISED = {"durable": Promise("it is kept", "https://example.org")}


def made(claims=None, findings=(), **more):
    certificate = Certificate(
        target="a-store",
        summary="A store",
        kind="store",
        style="history",
        unit="one call",
        verdict=UNKNOWN,
        seed=0,
        date="2026-11-16",
        chaoskit="0.1.0",
        versions={"lib": "1.0"},
        settings={"journal_mode": "wal"},
        files=("a.db",),
        saves=30,
        operations=90,
        claims=claims or {"durable": {"process": HOLDS}},
        properties={},
        findings=findings,
        **{"coverage": SOME, "promises": PROMISED, **more},
    )
    return msgspec.structs.replace(certificate, verdict=certificate.decide())


FENCE = {"fenced": Promise("one writer", "https://example.org")}


@pytest.mark.parametrize(
    ("claims", "more", "verdict", "headline"),
    [
        ({"durable": {"process": HOLDS}}, {}, HOLDS, "HOLDS its 1 promise"),
        (
            {"durable": {"process": VIOLATED}},
            {"findings": (finding(),)},
            VIOLATED,
            "VIOLATED: breaks durable (1 of its 1 promise)",
        ),
        ({"durable": {"process": HOLDS}}, {"unknown": ("a fault did not fire",)}, UNKNOWN, "UNKNOWN"),
        ({"durable": {"process": UNKNOWN}}, {}, UNKNOWN, "UNKNOWN"),
        ({"durable": {"process": HOLDS}}, {"coverage": {"process": Coverage()}}, UNKNOWN, "UNKNOWN"),
        ({"durable": {}}, {}, UNKNOWN, "UNKNOWN: see the reasons (durable not measured)"),
        # Whatever is not promised is a hazard.
        (
            {"durable": {"process": HOLDS}, "atomic": {"process": VIOLATED}},
            {"findings": (finding("atomic", None),)},
            HOLDS,
            "HOLDS its 1 promise; 1 hazard: atomic",
        ),
        # ... and whatever is promised counts, even if few stores promise it.
        (
            {"fenced": {"process": VIOLATED}},
            {"promises": FENCE, "findings": (finding("fenced"),)},
            VIOLATED,
            "VIOLATED: breaks fenced (1 of its 1 promise)",
        ),
        # A violation without any fault belongs to no tier, but counts.
        ({"durable": {"undisturbed": VIOLATED}}, {}, VIOLATED, "VIOLATED"),
        # A library that promises nothing has broken nothing, but has not earned HOLDS either.
        (
            {"durable": {"process": VIOLATED}},
            {"promises": {}, "findings": (finding("durable", None),)},
            UNKNOWN,
            "UNKNOWN: it promises nothing; 1 hazard: durable",
        ),
        ({"durable": {"process": HOLDS}}, {"promises": {}}, HOLDS, "HOLDS: promises nothing"),
    ],
)
def test_the_verdict_depends_on_promises_and_needs_evidence(claims, more, verdict, headline):
    certificate = made(claims, **more)
    assert certificate.verdict is verdict
    assert certificate.headline().startswith(headline)


def test_cell_headline_junit_and_exit_code_follow_one_rule():
    hazard = made(
        {"durable": {"process": HOLDS}, "atomic": {"process": VIOLATED}}, (finding("atomic", None),)
    )
    assert (hazard.sign("atomic", "process"), hazard.verdict) == ("hazard", HOLDS)
    assert (hazard.fails("promise"), hazard.fails("hazard")) == (False, True)
    assert ET.fromstring(pages.junit(hazard)).get("failures") == "0"  # noqa: S314 - our own text
    broken = made({"durable": {"process": VIOLATED}}, (finding(),))
    assert (broken.sign("durable", "process"), broken.verdict) == ("VIOLATED", VIOLATED)
    assert (broken.fails("promise"), broken.fails("hazard")) == (True, True)
    assert ET.fromstring(pages.junit(broken)).get("failures") == "1"  # noqa: S314 - our own text


def adapter(promises):
    return Adapter(
        name="a",
        reference="a.py:A",
        summary="",
        style="snapshot",
        methods=("open", "save", "load", "close"),
        requires=(),
        promises=promises,
    )


def test_an_adapter_that_declares_no_promises_is_held_to_what_persistence_is_for():
    assert set(promises_of(adapter(None))) == {
        "durable",
        "atomic",
        "prefix",
        "loadable",
        "continues",
        "isolated",
        "immutable",
        "consistent",
    }
    assert not any(promise.power for promise in promises_of(adapter(None)).values())
    assert promises_of(adapter({})) == {}
    assert promises_of(adapter(PROMISED)) == PROMISED


def test_a_certificate_survives_its_json(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(certificates.encode(made(findings=(finding(),))))
    assert certificates.load(path) == made(findings=(finding(),))


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', "[1]"])
def test_a_file_that_is_not_a_certificate_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a certificate"):
        certificates.load(path)


def test_comparing_says_what_is_fixed_and_what_is_broken():
    before = made({"durable": {"process": VIOLATED}, "atomic": {"process": HOLDS}})
    after = made({"durable": {"process": HOLDS}, "atomic": {"process": VIOLATED}})
    changes = {change.claim: change for change in certificates.compare(before, after)}
    assert {claim: change.summary for claim, change in changes.items()} == {
        "durable": "fixed",
        "atomic": "broken",
    }
    assert not changes["atomic"].fails("promise")
    assert changes["atomic"].fails("hazard")
    assert not list(certificates.compare(before, before))


def test_pages_distinguish_broken_promises_from_hazards():
    broken = made({"durable": {"process": VIOLATED}}, (finding(),))
    hazard = made({"atomic": {"process": VIOLATED}}, (finding("atomic", None),))
    assert "**VIOLATED**" in pages.markdown(broken)
    assert "Promised: it is kept (https://example.org)" in pages.markdown(broken)
    assert "| atomic | hazard |" in pages.markdown(hazard)
    assert "not a broken promise" in pages.markdown(hazard)
    assert "breaks durable" in pages.badge_svg(broken)
    assert json.loads(pages.badge_json(broken))["message"] == "breaks durable"


def test_a_promise_about_crashes_says_nothing_about_power():
    claims = {"durable": {"power-ext4": VIOLATED}}
    assert made(claims).sign("durable", "power-ext4") == "hazard"
    power = {"durable": Promise("commits are synced", "https://example.org", power=True)}
    promised = msgspec.structs.replace(made(claims), promises=power)
    assert promised.sign("durable", "power-ext4") == "VIOLATED"


def test_the_html_page_is_one_file_and_escapes_its_content():
    page = pages.html(made({"durable": {"process": VIOLATED}}, (finding(),)))
    assert "&lt;nothing&gt;" in page
    assert "<script" not in page
    assert "src=" not in page


def test_junit_has_a_case_per_cell():
    claims = {"durable": {"process": VIOLATED}, "atomic": {"process": HOLDS}, "prefix": {}}
    suite = ET.fromstring(pages.junit(made(claims, (finding(),))))  # noqa: S314 - our own text
    assert (suite.get("tests"), suite.get("failures")) == ("4", "1")  # the last case is the verdict
    assert "chaoskit replay ck1-abc" in suite.find(".//failure").text
    assert suite.find(".//skipped") is not None


def test_the_scoreboard_shows_the_worst_of_each_tier():
    board = pages.scoreboard_markdown([made({"durable": {"process": VIOLATED}}, (finding(),))])
    assert "| a-store | lib 1.0 | **VIOLATED** | - |" in board
    assert "a-store" in pages.scoreboard_html([made()])
