"""Origin: the adapter's file and the library's versions that a target's finding was made with.

A token carries them, so that a replay can tell "fixed" from "something else was run".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from chaoskit import registry
from chaoskit.model import Repro
from chaoskit.run import environment


class Origin(msgspec.Struct, frozen=True):
    adapter: str = ""  # a digest of its file
    versions: dict[str, str] = {}


def origin_of(scenario: str) -> Origin:
    """Of a scenario `target:NAME`; other scenarios have none."""
    if not scenario.startswith(registry.TARGET):
        return Origin()
    adapter = registry.adapter(registry.parse_target(scenario.removeprefix(registry.TARGET)).without_variant)
    source = Path(adapter.reference.rpartition(":")[0]).read_bytes()
    return Origin(hashlib.blake2b(source, digest_size=4).hexdigest(), _versions(adapter.requires))


@lru_cache  # costs a process, and does not change while this one runs
def _versions(wanted: tuple[str, ...]) -> dict[str, str]:
    return environment.versions(environment.interpreter(wanted), wanted) if wanted else {}


def changes(wanted: Repro, now: Origin) -> Iterator[str]:
    """What is not as it was when the token was made; tokens of older versions do not say."""
    if wanted.adapter and wanted.adapter != now.adapter:
        yield "the adapter's file has changed since this token was made"
    for name, version in wanted.versions.items():
        if now.versions.get(name) != version:
            there = now.versions.get(name, "not required")
            yield f"{name} was {version} when this token was made, and is {there} now"
