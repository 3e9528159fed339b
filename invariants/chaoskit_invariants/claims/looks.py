"""Looks: folds a store's history into what each look at the store must, may and must not find.

An acknowledged change (save, append, delete) must be present. A change that failed or was interrupted may
be present. The changes made after it determine which is the latest.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from chaoskit.model import Ack, History, Invoke, Probe

Found = list[int]  # [n] for a state, [n, part, of] for an item


class Session:
    """The changes requested of one session so far."""

    def __init__(self) -> None:
        self.asked: list[int] = []  # numbers in the order requested; a repeated one appears twice
        self.acknowledged: list[int] = []
        self.repeated: set[int] = set()  # requested again because the outcome was unknown
        self.gone: set[int] = set()  # requested before an acknowledged deletion
        self.may_be_deleted = False

    def ask(self, change: dict[str, Any]) -> None:
        if change["do"] == "delete":
            self.may_be_deleted = True
        else:
            if change["n"] in self.asked:
                self.repeated.add(change["n"])
            self.asked.append(change["n"])

    def acknowledge(self, change: dict[str, Any]) -> None:
        if change["do"] == "delete":
            self.acknowledged, self.may_be_deleted = [], False
            self.gone = set(self.asked)
            return
        if change["n"] not in self.acknowledged:
            self.acknowledged.append(change["n"])

    def as_it_is(self) -> Session:
        """A copy that no later event changes."""
        copy = Session()
        copy.asked, copy.acknowledged = list(self.asked), list(self.acknowledged)
        copy.repeated, copy.gone = set(self.repeated), set(self.gone)
        copy.may_be_deleted = self.may_be_deleted
        return copy

    @property
    def last(self) -> int | None:
        """The latest acknowledged change."""
        return max(self.acknowledged, key=self.asked.index, default=None)

    def places(self, n: int) -> list[int]:
        """Its possible positions in the order: a change that failed and was repeated may have either."""
        return [place for place, asked in enumerate(self.asked) if asked == n]

    def is_older(self, n: int, than: int) -> bool:
        return n not in self.asked or self.places(n)[-1] < self.places(than)[0]


class Look:
    """One session as one probe found it."""

    def __init__(self, probe: Probe, name: str, found: dict[str, Any], session: Session) -> None:
        self.probe = probe
        self.name = name
        self.found = found
        self.session = session

    def sequence(self) -> list[Found | str] | None:
        """Everything stored, oldest first; None where the store keeps only the latest."""
        for kind in ("items", "history"):
            if kind in self.found:
                kept: list[Found | str] = self.found[kind]
                return kept
        return None

    def numbers(self) -> list[int]:
        """The numbers in that sequence; an appended group counts once."""
        whole = [found for found in self.sequence() or () if isinstance(found, list)]
        return [found[0] for found in whole if len(found) == 1 or found[1] == 0]


def looks(history: History) -> list[Look]:
    return history.once(_looks)


def _looks(history: History) -> list[Look]:
    found: list[Look] = []
    sessions: dict[str, Session] = defaultdict(Session)
    for event in history.events:
        if isinstance(event, Invoke) and event.name == "change":
            sessions[event.args["session"]].ask(event.args)
        elif isinstance(event, Ack) and event.name == "changed":
            sessions[event.data["session"]].acknowledge(event.data)
        elif isinstance(event, Probe) and "sessions" in event.data:
            for name, seen in event.data["sessions"].items():
                # The session's state at this point: a look cannot show later requests.
                found.append(Look(event, name, seen, sessions[name].as_it_is()))
    return found
