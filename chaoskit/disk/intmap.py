"""IntMap: a persistent map from small integers to values.

A trie with 32 children per node. `put` copies only the path that changes and shares the rest, so the
cost of ten thousand versions is that of their changes. `diff` skips what two versions share, so its
cost depends on the difference, not on the size.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Generic, TypeVar

BITS = 5
MASK = (1 << BITS) - 1
_HOLLOW: tuple[Any, ...] = (None,) * (1 << BITS)

V = TypeVar("V")


class IntMap(Generic[V]):
    """`None` means absent: putting it removes the key."""

    __slots__ = ("_root", "_shift")

    def __init__(self, root: tuple[Any, ...] = _HOLLOW, shift: int = 0) -> None:
        self._root = root
        self._shift = shift

    def get(self, key: int) -> V | None:
        shift = self._shift
        if key >> (shift + BITS):
            return None
        node: Any = self._root
        while shift:
            node = node[(key >> shift) & MASK]
            if node is None:
                return None
            shift -= BITS
        found: V | None = node[key & MASK]
        return found

    def put(self, key: int, value: V | None) -> IntMap[V]:
        root, shift = self._root, self._shift
        while key >> (shift + BITS):
            root = (root, *_HOLLOW[1:])
            shift += BITS
        return IntMap(_put(root, shift, key, value), shift)

    def items(self, start: int = 0) -> Iterator[tuple[int, V]]:
        """In the order of keys, from `start` on."""
        return _items(self._root, self._shift, 0, start)

    def values(self) -> Iterator[V]:
        return map(itemgetter(1), self.items())

    def diff(self, other: IntMap[V]) -> Iterator[tuple[int, V | None, V | None]]:
        """(key, value here, value in `other`) wherever they hold different objects."""
        mine, theirs, shift = self._root, other._root, self._shift
        while shift < other._shift:
            mine, shift = (mine, *_HOLLOW[1:]), shift + BITS
        for _ in range(other._shift, shift, BITS):
            theirs = (theirs, *_HOLLOW[1:])
        return _diff(mine, theirs, shift, 0)


def _put(node: tuple[Any, ...] | None, shift: int, key: int, value: Any) -> tuple[Any, ...]:
    slots = list(node or _HOLLOW)
    at = (key >> shift) & MASK
    slots[at] = _put(slots[at], shift - BITS, key, value) if shift else value
    return tuple(slots)


def _items(node: tuple[Any, ...], shift: int, base: int, start: int) -> Iterator[tuple[int, Any]]:
    for slot, child in enumerate(node):
        key = base + (slot << shift)
        if child is None or key + (1 << shift) <= start:
            continue
        if shift:
            yield from _items(child, shift - BITS, key, start)
        else:
            yield key, child


def _diff(
    mine: tuple[Any, ...] | None, theirs: tuple[Any, ...] | None, shift: int, base: int
) -> Iterator[tuple[int, Any, Any]]:
    if mine is theirs:
        return
    pairs = zip(mine or _HOLLOW, theirs or _HOLLOW, strict=True)
    for slot, (here, there) in enumerate(pairs):
        if here is there:
            continue
        if shift:
            yield from _diff(here, there, shift - BITS, base + (slot << shift))
        else:
            yield base + slot, here, there
