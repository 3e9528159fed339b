"""Recent findings: `.chaoskit/tokens` keeps their tokens, so that `chaoskit replay 3f2a` works.

One line per token, the latest last. The file is only a convenience: without it, full tokens still work.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chaoskit import trust
from chaoskit.entry_points import UnknownName
from chaoskit.repro import PREFIX, short_id

FILE = Path(".chaoskit", "tokens")
KEPT = 1000  # tokens


def remember(tokens: Iterable[str], path: Path = FILE) -> None:
    """Appends the tokens in reverse, so that `replay last` finds the first of them."""
    new = list(dict.fromkeys(reversed(list(tokens))))
    trust.remember_own(new)
    if new:
        known = [token for token in recalled(path) if token not in new]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{token}\n" for token in [*known, *new][-KEPT:]))


def recalled(path: Path = FILE) -> list[str]:
    return path.read_text("ascii", "replace").split() if path.is_file() else []


def token_of(name: str, path: Path = FILE) -> str:
    """A full token is returned unchanged; `last` and short ids are looked up."""
    if name.startswith(PREFIX):
        return name
    known = recalled(path)
    found = known[-1:] if name == "last" else [token for token in known if short_id(token).startswith(name)]
    if len(found) == 1:
        return found[0]
    if not known:
        raise UnknownName(f"expected a token ({PREFIX}...), got {name!r}: no findings are recorded here")
    several = ", ".join(map(short_id, found or known[-5:]))
    what = "matches several findings" if found else "matches no finding recorded here; the latest are"
    raise UnknownName(f"{name!r} {what}: {several}")
