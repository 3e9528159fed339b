"""The cache directory: environments and the compiled interposer, which can be rebuilt at any time."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_directory() -> Path:
    """$CHAOSKIT_CACHE, or the user's cache directory."""
    chosen = os.environ.get("CHAOSKIT_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("chaoskit")
