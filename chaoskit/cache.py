"""The cache directory: environments and the compiled interposer, which can be rebuilt at any time."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import platformdirs

from chaoskit.wrong_use import WrongUse


def cache_directory() -> Path:
    """$CHAOSKIT_CACHE; or the user's cache directory; or, if that is not writable, a temporary one."""
    chosen = os.environ.get("CHAOSKIT_CACHE")
    if chosen and Path(chosen).exists() and not Path(chosen).is_dir():
        raise WrongUse(f"expected CHAOSKIT_CACHE to be a directory, got {chosen!r}")
    return Path(chosen) if chosen else _usual(platformdirs.user_cache_path("chaoskit"))


@cache
def _usual(place: Path) -> Path:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary()
    return place if os.access(place, os.W_OK | os.X_OK) else _temporary()


def _temporary() -> Path:
    """Others can create files in the parent: it must be ours, and nobody else's."""
    place = Path(tempfile.gettempdir()) / f"chaoskit-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or place.is_symlink():
        raise PermissionError(1, "it belongs to somebody else, or others may write to it", str(place))
    return place
