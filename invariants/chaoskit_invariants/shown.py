"""shown: a user who resumes a session sees the conversation as it is stored, complete and in order.

Verifies every recovery. The user sees as many texts (probe `shown`: one text per item) as the store has
items right after recovery (probe `recovered`). Each text contains its item, and little else: nothing is
missing, and nothing that was rolled back is shown. Cannot see the attributed speaker, whitespace and
punctuation (except in an item that consists of them), a few additional letters (a label), or anything after
the first thousand characters, because a screen may shorten a text.

Smallest history that breaks it: recovered with one message, shown nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from chaoskit.model import History, Invariant, NothingToJudge, Probe, Violation

ENOUGH = 1000  # characters
LABEL = 60  # letters that a screen may add: who speaks, when, and how much was cut


def check(history: History) -> Iterator[Violation]:
    stored: list[Any] = []
    looks = 0
    for probe in history.of(Probe):
        if probe.name == "recovered":
            stored = probe.data["messages"]
        elif probe.name == "shown":
            looks += 1
            yield from _judge(probe.data["shown"], list(_things_said(stored)))
    if not looks:
        raise NothingToJudge


def _things_said(messages: list[Any]) -> Iterator[str]:
    for role, content, calls in messages:
        if content or role == "tool":
            yield content
        for call in json.loads(calls or "[]"):
            yield call["name"] + json.dumps(call["args"], ensure_ascii=False)


def _judge(shown: list[str], said: list[str]) -> Iterator[Violation]:
    if len(shown) != len(said):
        yield Violation("length", f"{len(said)} texts are stored, but {len(shown)} were shown")
        return
    for number, (text, wanted) in enumerate(zip(shown, said, strict=True), 1):
        if not _shows(text, wanted):
            yield Violation("different", f"text {number} is {wanted[:80]!r}, but {text[:80]!r} was shown")


def _shows(text: str, wanted: str) -> bool:
    letters = _letters(wanted)
    if len(_letters(text)) > len(letters) + LABEL:
        return False
    if not letters:  # an emoji, for example
        return "".join(wanted.split()) in "".join(text.split())
    return _letters(wanted[:ENOUGH]) in _letters(text)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


INVARIANT = Invariant(
    name="shown", summary="a resumed session shows the conversation as it was recovered", check=check
)
