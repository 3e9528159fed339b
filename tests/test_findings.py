"""Findings as they are shown: once each, with all tiers, those of one crash together."""

import pytest

from chaoskit.show.findings import Entry, grouped, lines, middle, where


def entry(signature="durable/lost", tier="process", **more):
    return Entry(
        **{
            "signature": signature,
            "tier": tier,
            "times": 2,
            "message": "save 1 is gone",
            "token": f"ck1-{signature}{tier}",
            "crash": "kill before write#1",
            **more,
        }
    )


def test_a_finding_is_shown_once_with_all_its_tiers():
    (shown,) = grouped([entry(), entry(tier="torn", crash="kill half-way through write#1")])
    assert shown.tiers == {"process": 2, "torn": 2}
    assert where(shown) == "[process, torn] (4 runs)"


def test_findings_of_one_crash_are_listed_under_the_first():
    (shown,) = grouped([entry(), entry("prefix/gap")])
    assert [other.signature for other in shown.related] == ["prefix/gap"]
    assert "  also: prefix/gap: save 1 is gone" in lines(shown)


def test_another_crash_is_another_finding():
    assert len(grouped([entry(), entry("prefix/gap", crash="kill before fsync#2")])) == 2


def test_broken_promises_come_before_hazards_and_are_not_mixed_with_them():
    hazard = entry("fenced/overwritten", label="hazard")
    broken = entry("durable/lost", label="promise broken", promise="it is kept (https://example.org)")
    assert [each.entry.label for each in grouped([hazard, broken])] == ["promise broken", "hazard"]


def test_the_file_systems_of_a_finding_are_those_of_all_its_tiers():
    first = entry(tier="power-ext4", hint=("happens on ext4; not seen on xfs, btrfs (since 5.6)", "missing"))
    second = entry(tier="power-btrfs", hint=("happens on xfs, btrfs; not seen on ext4",))
    (shown,) = grouped([first, second])
    assert shown.entry.hint == ("happens on ext4, xfs, btrfs (since 5.6)", "missing")
    (alone,) = grouped([entry(tier="power-xfs", hint=("happens on xfs; not seen on ext4, btrfs",))])
    assert alone.entry.hint == ("happens on xfs; not seen on ext4, btrfs",)


@pytest.mark.parametrize("tier", ["process", "power-posix"])
def test_a_warning_about_other_file_systems_stays_one(tier):
    warning = ("not seen on ext4, xfs or btrfs: a warning about other file systems",)
    assert grouped([entry(tier=tier, hint=warning)])[0].entry.hint == warning
    also = entry(tier="power-xfs", hint=("happens on xfs; not seen on ext4, btrfs",))
    both = grouped([entry(tier=tier, hint=warning), also])
    assert both[0].entry.hint == ("happens on xfs; not seen on ext4, btrfs",)


@pytest.mark.parametrize("length", [400, 401, 20_000])
def test_a_long_message_is_cut_in_the_middle_with_its_length(length):
    shown = middle("a" * (length - 1) + "z")
    assert len(shown) <= 440
    assert shown.endswith("z")
    assert (f"({length:,} characters)" in shown) == (length > 400)
