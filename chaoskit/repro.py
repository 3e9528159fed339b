"""Repro tokens: one printable word that reproduces a failure.

    ck1-<base64url of: CRC-32, then msgpack of Repro, deflated>

`ck1` is the version of the format. A schedule means the same thing only within one version of chaoskit,
so a token of another version is rejected: a replay might take a different course.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib

import msgspec

from chaoskit import __version__
from chaoskit.faults.kind import decode_hook
from chaoskit.model import Repro
from chaoskit.wrong_use import WrongUse

PREFIX = "ck1-"
_LIMIT = 1 << 22  # upper bound of the inflated size: tokens are untrusted input
_LONGEST = 1 << 17  # characters
_MOST_CRASHES = 64  # of one schedule; our own plans have three


class BadToken(WrongUse):
    """Not a token, damaged, or made by another version; the message says which."""


def encode(repro: Repro) -> str:
    body = msgspec.msgpack.encode(repro)
    packed = zlib.compress(zlib.crc32(body).to_bytes(4, "big") + body, 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def short_id(token: str) -> str:
    """A short name for a token that `chaoskit replay` can look up."""
    return hashlib.blake2b(token.encode(), digest_size=3).hexdigest()


def decode(token: str) -> Repro:
    token = token.strip()
    if len(token) > _LONGEST:
        raise BadToken(f"expected a token of at most {_LONGEST:,} characters, got {len(token):,}")
    if not token.startswith(PREFIX):
        raise BadToken(f"expected a token that begins with {PREFIX!r}, got {token[:20]!r}")
    body = _unpack(token.removeprefix(PREFIX))
    version = _version(body)
    if version != __version__:
        raise BadToken(
            f"this token was made by chaoskit {version}, but this is chaoskit {__version__}: "
            f"to replay it, pip install chaoskit=={version}"
        )
    try:
        found = msgspec.msgpack.decode(body, type=Repro, dec_hook=decode_hook)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadToken(f"the token does not contain a schedule: {error}") from None
    if len(found.schedule.faults) > _MOST_CRASHES:
        raise BadToken(f"expected at most {_MOST_CRASHES} crashes, got {len(found.schedule.faults)}")
    return found


def _unpack(text: str) -> bytes:
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        content = zlib.decompressobj().decompress(packed, _LIMIT)
    except (binascii.Error, zlib.error, ValueError):
        raise BadToken("the token is damaged: was it copied completely?") from None
    checksum, body = content[:4], content[4:]
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise BadToken("the token is damaged: its checksum does not match")
    return body


def _version(body: bytes) -> str:
    try:
        return str(msgspec.msgpack.decode(body)["version"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError):
        raise BadToken("the token does not contain the version that made it") from None
