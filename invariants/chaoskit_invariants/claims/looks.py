"""Looks: folds a store's history into what each look at the store must, may and must not find.

An acknowledged change (save, append, delete) must be present. A change that failed or was interrupted may
be present. The changes made after it determine which is the latest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from chaoskit.model import Ack, Crashed, History, Invoke, Probe, Struck

Found = list[int]  # [n] for a state, [n, part, of] for an item


class Session:
    """The changes requested of one session so far. A *place* is the number of a request, from 0."""

    def __init__(self) -> None:
        self.asked: list[int] = []  # numbers in the order requested; a state saved again appears twice
        self.acknowledged: list[int] = []
        self.repeated: Counter[int] = Counter()  # requested again because the outcome was unknown
        self.brought_back: set[int] = set()  # states that were saved again after newer ones
        self.gone: set[int] = set()  # requested before an acknowledged deletion
        self.may_be_gone: set[int] = set()  # requested before a deletion that was not acknowledged
        self._settled: dict[int, int] = {}  # number -> the earliest place that its acknowledgement can mean

    def ask(self, change: dict[str, Any]) -> None:
        if change["do"] == "delete":
            self.may_be_gone = set(self.asked) - self.gone
        else:
            if self._is_retry(change):
                self.repeated[change["n"]] += 1
                if change["do"] == "save" and self.asked[-1:] != [change["n"]]:
                    self.brought_back.add(change["n"])
            self.asked.append(change["n"])
            self.gone.discard(change["n"])
            self.may_be_gone.discard(change["n"])

    def _is_retry(self, change: dict[str, Any]) -> bool:
        unanswered = change["n"] in self.asked and change["n"] not in self.acknowledged
        return bool(change.get("again")) or unanswered

    def acknowledge(self, change: dict[str, Any]) -> None:
        if change["do"] == "delete":
            self.acknowledged, self.may_be_gone = [], set()
            self.gone = set(self.asked)
            return
        n = change["n"]
        if n not in self.acknowledged:
            self.acknowledged.append(n)
        places = self.places(n)
        # A store that recognises a repetition keeps the place of the request that it repeats.
        self._settled[n] = places[-2] if self.repeated[n] and len(places) > 1 else places[-1]

    def as_it_is(self) -> Session:
        """A copy that no later event changes."""
        copy = Session()
        copy.asked, copy.acknowledged = list(self.asked), list(self.acknowledged)
        copy.repeated, copy.gone = Counter(self.repeated), set(self.gone)
        copy.brought_back = set(self.brought_back)
        copy.may_be_gone, copy._settled = set(self.may_be_gone), dict(self._settled)
        return copy

    @property
    def last(self) -> int | None:
        """The latest acknowledged change that no deletion may have removed."""
        return max(self.required, key=self._settled.__getitem__, default=None)

    @property
    def required(self) -> list[int]:
        """What must be there: acknowledged, and not requested before an open deletion."""
        return [n for n in self.acknowledged if n not in self.may_be_gone]

    def places(self, n: int) -> list[int]:
        """Its possible positions in the order: a change that failed and was repeated may have either."""
        return [place for place, asked in enumerate(self.asked) if asked == n]

    def made(self, n: int) -> int:
        """How often it was requested for its own sake."""
        return self.asked.count(n) - self.repeated[n]

    def is_older(self, n: int, than: int) -> bool:
        """Whether save `n` was requested before save `than` was last acknowledged, and not since."""
        return n not in self.asked or self.places(n)[-1] < self._settled[than]


class Look:
    """One session as one probe found it."""

    def __init__(
        self, probe: Probe, name: str, found: dict[str, Any], session: Session, *, struck: bool = False
    ) -> None:
        self.probe = probe
        self.name = name
        self.found = found
        self.session = session
        self.lost_power = False  # whether an earlier life ended with a power loss
        self.struck = struck  # its life had a failing disk, so not being able to read proves nothing

    def sequences(self) -> dict[str, list[Found | str]]:
        """Everything stored, oldest first, by method; empty if the adapter shows only the latest."""
        return {kind: self.found[kind] for kind in ("items", "history") if kind in self.found}

    @property
    def is_empty(self) -> bool:
        return self.found.get("load") is None and not any(self.sequences().values())

    @property
    def latest(self) -> Found | str | None:
        """The state that `load` shows."""
        shown: Found | str | None = self.found.get("load")
        return shown


def numbers(sequence: Iterable[Found | str]) -> list[int]:
    """The numbers in a sequence; an appended group counts once."""
    whole = [found for found in sequence if isinstance(found, list)]
    return [found[0] for found in whole if len(found) == 1 or found[1] == 0]


def looks(history: History) -> list[Look]:
    return history.once(_looks)


def _looks(history: History) -> list[Look]:
    found: list[Look] = []
    kinds = {event.args["do"] for event in history.of(Invoke, "change")} - {"delete"} or {"save"}
    sessions: dict[str, dict[str, Session]] = defaultdict(lambda: {kind: Session() for kind in kinds})
    struck = {event.life for event in history.of(Struck)}
    cut_off = min((e.life for e in history.of(Crashed) if e.fault.tier.startswith("power")), default=None)
    for event in history.events:
        if isinstance(event, Invoke) and event.name == "change":
            for session in _concerned(sessions, event.args):
                session.ask(event.args)
        elif isinstance(event, Ack) and event.name == "changed":
            for session in _concerned(sessions, event.data):
                session.acknowledge(event.data)
        elif isinstance(event, Probe) and "sessions" in event.data:
            for name, seen in _seen(event, sessions).items():
                for kind, session in sessions[name].items():
                    # The session's state at this point: a look cannot show later requests.
                    shown = _shown(seen, kind) if len(kinds) > 1 else seen
                    look = Look(event, name, shown, session.as_it_is(), struck=event.life in struck)
                    look.lost_power = cut_off is not None and event.life > cut_off
                    found.append(look)
    return found


def _concerned(sessions: dict[str, dict[str, Session]], change: dict[str, Any]) -> Iterable[Session]:
    """Saved states and appended items are read in different ways, so each is judged by its own requests."""
    mine = sessions[change["session"]]
    return mine.values() if change["do"] == "delete" else [mine[change["do"]]]


def _shown(seen: dict[str, Any], kind: str) -> dict[str, Any]:
    of_appends = {"items"}
    return {
        method: value
        for method, value in seen.items()
        if method == "trouble" or (method in of_appends) == (kind == "append")
    }


def _seen(probe: Probe, sessions: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What a probe shows of each session; of a store that cannot be opened, the trouble with all of them."""
    if "trouble" in probe.data:
        return {name: {"trouble": probe.data["trouble"]} for name in list(sessions)}
    shown: dict[str, dict[str, Any]] = probe.data["sessions"]
    return shown
