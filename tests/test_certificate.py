"""Certificates: what their verdict is made of, how two are compared, what every page shows."""

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from chaoskit.adapter import Promise
from chaoskit.certify import certificate as certificates
from chaoskit.certify.certificate import Certificate, CertifiedFinding, Coverage, verdict_of
from chaoskit.model import Verdict
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


def made(claims=None, findings=(), **more):
    claims = claims or {"durable": {"process": HOLDS}}
    return Certificate(
        target="a-store",
        summary="A store",
        kind="store",
        style="history",
        unit="one call",
        verdict=verdict_of(claims, {"durable"}, SOME, ()),
        seed=0,
        date="2026-11-16",
        chaoskit="0.1.0",
        versions={"lib": "1.0"},
        settings={"journal_mode": "wal"},
        files=("a.db",),
        saves=30,
        operations=90,
        claims=claims,
        coverage=SOME,
        promises={"durable": Promise("it is kept", "https://example.org")},
        properties={},
        findings=findings,
        **more,
    )


@pytest.mark.parametrize(
    ("claims", "coverage", "unknown", "verdict"),
    [
        ({"durable": {"process": HOLDS}}, SOME, (), HOLDS),
        ({"durable": {"process": VIOLATED}}, SOME, (), VIOLATED),
        ({"durable": {"process": HOLDS}}, SOME, ("a fault did not fire",), UNKNOWN),
        ({"durable": {"process": HOLDS}}, {"process": Coverage()}, (), UNKNOWN),
        ({"durable": {}}, SOME, (), UNKNOWN),
        # Nobody promises a fence by itself.
        ({"durable": {"process": HOLDS}, "fenced": {"zombie": VIOLATED}}, SOME, (), HOLDS),
    ],
)
def test_the_verdict_is_earned(claims, coverage, unknown, verdict):
    assert verdict_of(claims, {"durable"}, coverage, unknown) is verdict


def test_a_fence_that_is_promised_counts():
    claims = {"fenced": {"zombie": VIOLATED}}
    assert verdict_of(claims, {"fenced"}, SOME, ()) is VIOLATED


def test_a_certificate_survives_its_json(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(certificates.encode(made(findings=(finding(),))))
    assert certificates.load(path) == made(findings=(finding(),))


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', "[1]"])
def test_what_is_no_certificate_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a certificate"):
        certificates.load(path)


def test_comparing_says_what_is_mended_and_what_is_broken():
    before = made({"durable": {"process": VIOLATED}, "atomic": {"process": HOLDS}})
    after = made({"durable": {"process": HOLDS}, "atomic": {"process": VIOLATED}})
    changes = {change.claim: change.words for change in certificates.compare(before, after)}
    assert changes == {"durable": "mended", "atomic": "broken"}
    assert not list(certificates.compare(before, before))


def test_pages_say_promise_or_hazard():
    broken = made({"durable": {"process": VIOLATED}}, (finding(),))
    hazard = made({"atomic": {"process": VIOLATED}}, (finding("atomic", None),))
    assert "**VIOLATED**" in pages.markdown(broken)
    assert "It is promised: it is kept (https://example.org)" in pages.markdown(broken)
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


def test_the_page_is_one_file_and_escapes_what_it_shows():
    page = pages.html(made({"durable": {"process": VIOLATED}}, (finding(),)))
    assert "&lt;nothing&gt;" in page
    assert "<script" not in page
    assert "src=" not in page


def test_junit_has_a_case_per_cell():
    claims = {"durable": {"process": VIOLATED}, "atomic": {"process": HOLDS}, "prefix": {}}
    suite = ET.fromstring(pages.junit(made(claims, (finding(),))))  # noqa: S314 - our own text
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert "chaoskit replay ck1-abc" in suite.find(".//failure").text
    assert suite.find(".//skipped") is not None


def test_the_scoreboard_shows_the_worst_of_each_tier():
    board = pages.scoreboard_markdown([made({"durable": {"process": VIOLATED}}, (finding(),))])
    assert "| a-store | lib 1.0 | **VIOLATED** | - |" in board
    assert "a-store" in pages.scoreboard_html([made()])
