"""JSON files that are replaced atomically and keep fields that this release does not know (R6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from reference_agent.points import persisting
from reference_agent.store.durable import replace_file

# A block whose identity changed describes a different thing, so the old block's fields do not apply to it.
IDENTITIES = ("run_id", "resume_token_id", "token_id")


class Damaged(Exception):
    """The file is damaged in a way that a crash of the agent cannot cause; the message names the file."""


class JsonFile:
    def __init__(self, path: Path, point: str) -> None:
        self.path = path
        self._point = point

    def read(self) -> dict[str, Any] | None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Damaged(f"{self.path}: not a JSON object ({error})") from None

    def read_what_is_readable(self) -> dict[str, Any]:
        try:
            return self.read() or {}
        except Damaged:
            return {}

    def write(self, fields: dict[str, Any]) -> None:
        content = msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"
        with persisting(self._point):
            replace_file(self.path, content)

    def set_aside(self) -> None:
        """Copy the file to a name that no code reads, for inspection, before it is overwritten."""
        copy = self.path.with_name(self.path.name + ".set-aside")
        with persisting(f"{self._point}.aside"):
            replace_file(copy, self.path.read_bytes())


def overlay(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Merge recursively: `new`, plus the fields of `old` that it does not mention."""
    if any(old.get(name) != new.get(name) for name in IDENTITIES):
        return new
    merged = old | new
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            merged[name] = overlay(before, value)
    return merged
