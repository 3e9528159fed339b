"""The file systems on which a failure can happen, merged from several findings of that failure. Pure.

For each finding, only the most telling states of each file system are tried. So one finding may miss a file
system on which another one shows the same failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NAMES = ("ext4", "xfs", "btrfs")
_HAPPENS = re.compile(r"happens on ([a-z0-9, ]+)(?:; not seen on [a-z0-9, ]+)?( \(.*\))?")
_NOWHERE = "not seen on ext4, xfs or btrfs"


def merged(hint: tuple[str, ...], others: Iterable[Sequence[str]], tiers: Iterable[str]) -> tuple[str, ...]:
    """The hint, with every file system that a finding of the same failure names, or that its tier is of."""
    if not hint or not (_HAPPENS.fullmatch(hint[0]) or hint[0].startswith(_NOWHERE)):
        return hint
    found = [match for match in (_HAPPENS.fullmatch(other[0]) for other in others if other) if match]
    there = {name for match in found for name in match[1].split(", ")}
    there |= {tier.removeprefix("power-") for tier in tiers}
    yes, no = ([name for name in NAMES if (name in there) == wanted] for wanted in (True, False))
    if not yes:
        return hint
    remark = next((match[2] for match in found if match[2]), "")
    words = f"happens on {', '.join(yes)}" + (f"; not seen on {', '.join(no)}" if no else "")
    return (words + remark, *hint[1:])
