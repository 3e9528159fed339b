"""Repro tokens: one printable word from which a failure is reproduced.

    ck1-<base64url of: CRC-32, then msgpack of Repro, deflated>

The leading `ck1` is the format. Behaviour belongs to a version of chaoskit, so a token made by
another version is refused rather than replayed into a different story.
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

PREFIX = "ck1-"
_LIMIT = 1 << 22  # a token cannot make us inflate more than this


class BadToken(ValueError):
    """Not a token, a damaged one, or one of another version; the message says which."""


def encode(repro: Repro) -> str:
    body = msgspec.msgpack.encode(repro)
    packed = zlib.compress(zlib.crc32(body).to_bytes(4, "big") + body, 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def short_id(token: str) -> str:
    """A few characters that name a token where its result is at hand."""
    return hashlib.blake2b(token.encode(), digest_size=3).hexdigest()


def decode(token: str) -> Repro:
    token = token.strip()
    if not token.startswith(PREFIX):
        raise BadToken(f"expected a token that begins with {PREFIX!r}, got {token[:20]!r}")
    body = _unpack(token.removeprefix(PREFIX))
    version = _version(body)
    if version != __version__:
        raise BadToken(
            f"this token was made by chaoskit {version}, and this is chaoskit {__version__}: "
            f"pip install chaoskit=={version} to replay it"
        )
    try:
        return msgspec.msgpack.decode(body, type=Repro, dec_hook=decode_hook)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadToken(f"the token does not hold a schedule: {error}") from None


def _unpack(text: str) -> bytes:
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        content = zlib.decompressobj().decompress(packed, _LIMIT)
    except (binascii.Error, zlib.error, ValueError):
        raise BadToken("the token is damaged: was it copied whole?") from None
    checksum, body = content[:4], content[4:]
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise BadToken("the token is damaged: its checksum does not match")
    return body


def _version(body: bytes) -> str:
    try:
        return str(msgspec.msgpack.decode(body)["version"])
    except (msgspec.DecodeError, KeyError, TypeError):
        raise BadToken("the token does not say which version made it") from None
