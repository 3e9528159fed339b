"""Trust: what a token would import or install, and whether the user has agreed to that.

A token is text from anywhere. By itself it may only name what is registered: scenarios, targets, mutants
and stores that the user has installed. Anything else needs consent: `--trust`, or that this user's own run
made the token. Digests of those are kept in the cache directory: a file in the project could come with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from chaoskit import registry
from chaoskit.cache import cache_directory
from chaoskit.model import Repro
from chaoskit.wrong_use import WrongUse

MOST = 1 << 20  # bytes of the file of digests; then the older half is dropped


class NotTrusted(WrongUse):
    """The token names code or servers that the user has not agreed to."""


def foreign(wanted: Repro) -> Iterator[str]:
    """What a replay would do beyond running what is registered."""
    name = wanted.scenario
    if name.startswith(registry.TARGET):
        asked = registry.parse_target(name.removeprefix(registry.TARGET))
        if asked.reference not in registry.targets():
            yield f"import {asked.reference}"
        if asked.instead:
            yield f"install {', '.join(asked.instead)}"
    elif name not in registry.scenarios():
        yield f"import {name}"
    if wanted.store and ":" in wanted.store:
        yield f"connect to {wanted.store}"


def check(token: str, wanted: Repro, *, trusted: bool) -> None:
    """Raises NotTrusted, which says what would happen."""
    would = list(foreign(wanted))
    if would and not trusted and _digest(token) not in _own():
        raise NotTrusted(
            f"this token would {', and '.join(would)}; it was not made by a run of yours."
            " If you trust where it comes from, add --trust"
        )


def remember_own(tokens: Iterable[str]) -> None:
    """Without a writable cache directory, replays of these tokens need --trust."""
    new = [_digest(token) for token in tokens]
    if not new:
        return
    with suppress(OSError):
        place = _file()
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_file() and place.stat().st_size > MOST:
            place.write_text("".join(f"{digest}\n" for digest in _own()[-MOST // 66 :]))
        with place.open("a") as file:  # appended at once: workers of pytest do this at the same time
            file.write("".join(f"{digest}\n" for digest in new))


def _own() -> list[str]:
    try:
        return _file().read_text().split()
    except (OSError, UnicodeDecodeError):
        return []


def _file() -> Path:
    return cache_directory() / "own-tokens"


def _digest(token: str) -> str:
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=16).hexdigest()
