"""Reads what a store left on disk without any of the store's code: an oracle must not share its bugs.

A scenario of the reference agent accepts every store that has a reader: the two built-in ones, and those
for which a package declares one beside the store itself:

    [project.entry-points."chaoskit_scenarios.store_readers"]
    postgresql = "my_package.reader:READER"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from chaoskit_scenarios.tree.spelling import digest_of
from reference_agent.store.registry import STORES, Registry, name_in

READERS = Registry(
    "chaoskit_scenarios.store_readers",
    "reader of the store",
    {
        "sqlite": "chaoskit_scenarios.readers.sqlite:READER",
        "files": "chaoskit_scenarios.readers.files:READER",
    },
)


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """`store` is as the user gave it, a name or a URL; `lines` are those of the session's log."""

    # (directory, store, session, lines) -> messages, answers, checkpoint, versions, usage, errors; and, for a
    # closer look, checkpoints (all versions), beyond (messages after the checkpoint), calls (id -> status)
    session: Callable[[Path, str, str, Sequence[str]], dict[str, Any]]
    # The same -> plan and spent tokens of the last checkpoint
    checkpoint: Callable[[Path, str, Sequence[str]], dict[str, Any]]
    # (directory, store) -> agents (state and blob), parents, messages (with outcomes), log
    daemon: Callable[[Path, str], dict[str, Any]]


def readable_stores() -> tuple[str, ...]:
    """The stores that scenarios can run on, the default first."""
    readers = READERS.names()
    return tuple(name for name in STORES.names() if name in readers)


def modules() -> tuple[str, ...]:
    """The modules of stores and readers, to be imported once before the fork, for all lives."""
    names = readable_stores()
    references = [found.reference(name) for name in names for found in (STORES, READERS)]
    found = tuple(reference.partition(":")[0] for reference in references)
    return found if set(names) <= READERS.built_in.keys() else (*found, f"{__name__}.installed")


def read_session(directory: Path, store: str, session: str) -> dict[str, Any]:
    lines = _log(directory, session)
    return {**_reader(store).session(directory, store, session, lines), "log": lines}


def read_checkpoint(directory: Path, store: str, session: str) -> dict[str, Any]:
    return _reader(store).checkpoint(directory, store, _log(directory, session))


def read_daemon(directory: Path, store: str) -> dict[str, Any]:
    """`agents` (state, turns, contents), `parents`, `messages` (with outcomes), `log`, and `damage`."""
    found = _reader(store).daemon(directory, store)
    damage: list[str] = []
    for agent, record in found["agents"].items():
        try:
            turns = json.loads(record.pop("blob"))["turns"]
            record["turns"] = [[turn["message_id"], turn["reply"]] for turn in turns]
            record["contents"] = {turn["message_id"]: digest_of(turn["content"]) for turn in turns}
        except (ValueError, KeyError, TypeError) as error:
            record["turns"], record["contents"] = [], {}
            damage.append(f"the blob of {agent} cannot be read: {error!r}")
    return {**found, "damage": damage}


def _reader(store: str) -> Reader:
    found = READERS.load(name_in(store))
    assert isinstance(found, Reader), f"{READERS.reference(name_in(store))} is not a Reader"
    return found


def _log(directory: Path, session: str) -> list[str]:
    content = (directory / f"{session}.messages.jsonl").read_bytes()
    # Not str.splitlines: a line of JSON may contain U+2028 and other characters that it splits at.
    return [line.decode(errors="replace") for line in content.splitlines(keepends=True)]
