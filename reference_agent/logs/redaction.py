"""Redaction: converts any value to plain JSON values and removes what looks like a secret.

A secret is recognised by its name or by its form:

    the value of a field       {"resume_token": "x", "X-Api-Key": "y", "input_tokens": 5}
    whose name ends like one   -> both hidden, at any depth; a count of tokens is not a token
    name=value in a text       "api_key='x'", "Authorization: Bearer y", JSON inside a text
    form                       "Bearer ...", "sk-...", the password in scheme://user:password@host

It cannot recognise a secret in a field with a harmless name and without a typical form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

REDACTED = "[redacted]"
SECRET_NAMES = (
    "api_key",
    "api_keys",
    "access_key",
    "private_key",
    "secret_key",
    "authorization",
    "token",
    "secret",
    "secrets",
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "cookie",
)

LONGEST_TEXT = 4_000  # a tool may return megabytes; a log line is for reading
DEEPEST = 12  # deeper than any arguments seen; also terminates on cyclic structures
LARGEST_INT = 2**63  # many JSON parsers reject more


class Redactor:
    """Turns any value into plain JSON values without secrets."""

    def __init__(self, secret_names: Sequence[str]) -> None:
        self._endings = tuple(_letters(name) for name in secret_names)
        # Longest first: "secret" would otherwise match the beginning of "secrets".
        names = sorted(secret_names, key=len, reverse=True)
        spelt = "|".join(re.escape(name).replace("_", "[_-]?") for name in names)
        # A quoted value extends to the next quote of its kind, even an escaped one (JSON in a text); an
        # unquoted value extends to the end of the word.
        value = r"""(?:\\*"[^"]*"?|\\*'[^']*'?|(?:(?:bearer|basic)\s+)?[^\s"',;)}\]&]+)"""
        self._patterns = (
            (re.compile(rf"""((?:{spelt})\\?["']?\s*[:=]\s*){value}""", re.IGNORECASE), r"\1"),
            (re.compile(r"(\bbearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE), r"\1"),
            (re.compile(r"()\bsk-[\w-]{8,}"), r"\1"),
            (re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)"), r"\1"),
        )

    def field(self, name: object, value: object, depth: int = 0) -> object:
        """A missing secret is shown as missing: operators often look for exactly that."""
        if value is not None and _letters(str(name)).endswith(self._endings):
            return REDACTED
        return self.plain(value, depth)

    def text(self, text: str) -> str:
        length = len(text)
        # Twice the length shown: a secret that this cuts in two lies beyond the shown part.
        text = text[: 2 * LONGEST_TEXT]
        for pattern, kept in self._patterns:
            text = pattern.sub(kept + REDACTED, text)
        # Strict JSON parsers reject text that UTF-8 cannot encode (a lone surrogate), even when escaped.
        text = text.encode("utf-8", "backslashreplace").decode()
        if length <= LONGEST_TEXT:
            return text
        return f"{text[:LONGEST_TEXT]}... ({length} characters)"

    def plain(self, value: object, depth: int = 0) -> object:
        try:
            return self._plain(value, depth)
        except Exception as error:  # noqa: BLE001 - L4: the value's own repr, str or iterator may raise
            return f"<unprintable {type(value).__name__}: {type(error).__name__}>"

    def _plain(self, value: object, depth: int) -> object:
        match value:
            case None | bool():
                return value
            case int() if abs(value) < LARGEST_INT:
                return int(value)
            case float() if math.isfinite(value):
                return float(value)
            case str():
                return self.text(value)
            case BaseException():
                return self.text(f"{type(value).__name__}: {value}")
        return self._container(value, depth)

    def _container(self, value: object, depth: int) -> object:
        if depth > DEEPEST:
            return "..."  # not its repr, which would show secrets further down
        match value:
            case msgspec.Struct():
                return self._mapping(msgspec.structs.asdict(value), depth)
            case Mapping():
                return self._mapping(value, depth)
            case list() | tuple():
                return [self.plain(item, depth + 1) for item in value]
            case Set():
                return self._set(value, depth)
        return self.text(repr(value))

    def _mapping(self, mapping: Mapping[Any, Any], depth: int) -> dict[str, object]:
        return {self.text(str(name)): self.field(name, value, depth + 1) for name, value in mapping.items()}

    def _set(self, items: Set[object], depth: int) -> list[object]:
        """Sorted: the order of a set differs between processes."""
        return sorted((self.plain(item, depth + 1) for item in items), key=repr)


def _letters(name: str) -> str:
    """X-Api-Key, api_key and apiKey are one name."""
    return "".join(character for character in name.lower() if character.isalnum())
