"""Makes a life repeatable: everything random follows the seed."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
import uuid
from typing import Any

from chaoskit.inside.life import Life

CONNECT = sqlite3.connect  # the original: each life of a reused process patches it again


def make_repeatable(life: Life) -> None:
    """Derives ids, random numbers and SQL's clock from the seed and the life; Python's clock stays real."""
    rng = random.Random(f"{life.seed}/{life.number}")
    random.seed(f"{life.seed}/{life.number}")
    os.urandom = rng.randbytes
    # Names of temporary files: tempfile seeds its own generator from the kernel.
    tempfile._name_sequence = iter(lambda: f"{rng.getrandbits(40):010x}", "")  # type: ignore[attr-defined]  # noqa: SLF001
    uuid.uuid4 = lambda: uuid.UUID(int=rng.getrandbits(128), version=4)
    uuid.uuid1 = lambda node=None, clock_seq=None: uuid.UUID(int=rng.getrandbits(128), version=1)  # noqa: ARG005
    _make_sql_time_stand_still(f"2026-01-01 00:{life.number % 60:02d}:00")


def _make_sql_time_stand_still(now: str) -> None:
    """Makes CURRENT_TIMESTAMP constant for a whole life.

    SQLite does not write a page that an update leaves unchanged, so whether setting `updated_at` causes a
    write would depend on whether the clock has reached the next second.
    """

    def connects(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = CONNECT(*args, **kwargs)
        db.create_function("current_timestamp", 0, lambda: now)
        return db

    sqlite3.connect = connects  # type: ignore[assignment]
    sqlite3.dbapi2.connect = connects  # type: ignore[assignment]
