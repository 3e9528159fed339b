"""What a power loss may leave on a disk, from the log of its writes and flushes. Pure.

Everything that was flushed is there, and of the blocks written since, any subset: a disk with a write cache
promises no order. One block may be torn between sectors. The subsets tried are the telling ones: all, none,
all but one, only one, and some at random.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import msgspec

from tests.realdisk.device import BLOCK, SECTOR, Blocks

_HEAD = struct.Struct("<cQI")
NEAREST = 6  # of the unflushed blocks, how many are left out, or kept, one by one
SUBSETS = 4
Write = tuple[int, bytes]  # block number, content


class Crash(msgspec.Struct, frozen=True):
    done: int  # operations of the program that had returned
    label: str
    blocks: Blocks


def records(log: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    while at < len(log):
        kind, offset, length = _HEAD.unpack_from(log, at)
        at += _HEAD.size + length
        yield kind.decode(), offset, log[at - length : at]


class Cache:
    """The disk: what is durable, and what is written and not yet flushed, oldest first."""

    def __init__(self, blank: Blocks) -> None:
        self.durable = dict(blank)
        self.pending: list[Write] = []

    def write(self, offset: int, data: bytes) -> None:
        """Parts of blocks become whole ones: superblocks are smaller."""
        while data:
            number, start = divmod(offset, BLOCK)
            part, data = data[: BLOCK - start], data[BLOCK - start :]
            old = self._now(number) if len(part) < BLOCK else b""
            self.pending.append((number, old[:start] + part + old[start + len(part) :]))
            offset += len(part)

    def _now(self, number: int) -> bytes:
        latest = (block for there, block in reversed(self.pending) if there == number)
        return next(latest, None) or self.durable.get(number) or bytes(BLOCK)

    def flush(self) -> None:
        self.durable.update(self.pending)
        self.pending = []

    def losses(self, rng: random.Random) -> Iterator[tuple[str, list[Write]]]:
        pending = self.pending
        yield "all", pending
        yield "flushed only", []
        if len(pending) < 2:
            return
        for i in range(max(0, len(pending) - NEAREST), len(pending)):
            yield f"without {i}", pending[:i] + pending[i + 1 :]
            yield f"only {i}", [pending[i]]
        for _ in range(SUBSETS if len(pending) > 3 else 0):
            yield "subset", [write for write in pending if rng.random() < 0.5]

    def torn(self) -> Iterator[tuple[str, list[Write]]]:
        """The last write, if it is data of the program: those are long runs of one byte."""
        if not self.pending or not _looks_like_data(self.pending[-1][1]):
            return
        *earlier, (number, new) = self.pending
        before = next((block for there, block in reversed(earlier) if there == number), None)
        old = before or self.durable.get(number) or bytes(BLOCK)
        for cut in (SECTOR, 4 * SECTOR, 7 * SECTOR):
            yield f"torn {cut}", [*earlier, (number, new[:cut] + old[cut:])]


def _looks_like_data(block: bytes) -> bool:
    return any(block[:SECTOR]) and len(set(block)) <= 6


def crashes(log: bytes, blank: Blocks, rng: random.Random) -> Iterator[Crash]:
    """Each distinct disk that a power loss between `start` and `end` may leave."""
    cache, done, started = Cache(blank), 0, False
    seen: set[tuple[int, int]] = set()
    for kind, offset, data in records(log):
        if kind == "W":
            cache.write(offset, data)
        elif kind == "F":
            cache.flush()
        else:
            mark = data.decode()
            if mark == "end":
                return
            started |= mark == "start"
            done = int(mark[3:]) if mark.startswith("op ") else done
        if not started:
            continue
        for label, kept in (*cache.losses(rng), *cache.torn()):
            blocks = {**cache.durable, **dict(kept)}
            key = done, hash(frozenset((number, hash(block)) for number, block in blocks.items()))
            if key not in seen:
                seen.add(key)
                yield Crash(done, label, blocks)
