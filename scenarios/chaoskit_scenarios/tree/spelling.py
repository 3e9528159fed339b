"""Texts as a workload and a history spell them: JSON cannot hold every text, and a megabyte is too long."""

from __future__ import annotations

import zlib

LONG = 40
SPELLED = {"~nul~": "\0", "~surrogate~": "\ud800", "~separator~": "\u2028", "~big~": "x" * 1_000_000}


def text_of(spelled: str) -> str:
    for name, text in SPELLED.items():
        spelled = spelled.replace(name, text)
    return spelled


def digest_of(text: str) -> str:
    """The text, if it is short: two texts with the same digest are taken to be the same."""
    checksum = zlib.crc32(text.encode(errors="surrogatepass"))
    return text if len(text) <= LONG else f"{len(text)} characters, {checksum:08x}"
