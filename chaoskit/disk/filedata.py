"""FileData: the bytes of one file, immutable, in pages that versions share.

A page is stored without its trailing zeros, and a page of zeros is not stored, so that equal contents
have equal pages however they came about (written, truncated, punched). The digest is the exclusive or
of the pages' digests, so it is updated in constant time per page.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from chaoskit.disk.intmap import IntMap

PAGE = 4096
Leaf = tuple[bytes, int]  # content without trailing zeros, digest of (page number, content)


def leaf(number: int, content: bytes) -> Leaf | None:
    content = content.rstrip(b"\0")
    if not content:
        return None
    salt = number.to_bytes(16, "little")
    return content, int.from_bytes(blake2b(content, digest_size=16, salt=salt).digest(), "little")


def splice(old: bytes, start: int, chunk: bytes) -> bytes:
    """`old` with `chunk` laid over it at `start`; a gap between them reads as zeros."""
    if not start and len(chunk) >= len(old):
        return chunk
    return old[:start].ljust(start, b"\0") + chunk + old[start + len(chunk) :]


class FileData:
    __slots__ = ("pages", "size", "sum")

    def __init__(self, size: int, pages: IntMap[Leaf], sum_: int) -> None:
        self.size = size
        self.pages = pages
        self.sum = sum_

    def __deepcopy__(self, memo: object) -> FileData:
        return self  # immutable: copies of a model share it

    @property
    def digest(self) -> tuple[int, int]:
        return self.size, self.sum

    def page(self, number: int) -> bytes:
        found = self.pages.get(number)
        return found[0] if found else b""

    def put_leaf(self, number: int, new: Leaf | None) -> FileData:
        old = self.pages.get(number)
        if old is new:
            return self
        change = (old[1] if old else 0) ^ (new[1] if new else 0)
        return FileData(self.size, self.pages.put(number, new), self.sum ^ change)

    def write(self, offset: int, data: bytes) -> FileData:
        result = self
        for number, start, chunk in chunks(offset, data):
            content = splice(result.page(number), start, chunk)
            result = result.put_leaf(number, leaf(number, content))
        return result.at_least(offset + len(data) if data else 0)

    def at_least(self, size: int) -> FileData:
        return self if size <= self.size else FileData(size, self.pages, self.sum)

    def truncate(self, size: int) -> FileData:
        result = self
        if size < self.size:
            result = result._clear_from(size)
        return FileData(size, result.pages, result.sum)

    def fitted(self, size: int) -> FileData:
        """Exactly `size` long, with bytes beyond it cleared."""
        data = self._clear_from(size) if size < self.size or self._spills(size) else self
        return data if data.size == size else FileData(size, data.pages, data.sum)

    def _spills(self, size: int) -> bool:
        return len(self.page(size // PAGE)) > size % PAGE

    def _clear_from(self, size: int) -> FileData:
        if size == 0:
            return EMPTY
        result = self
        number, keep = divmod(size, PAGE)
        for beyond in [key for key, _ in self.pages.items(number)]:
            kept = self.page(beyond)[:keep] if beyond == number else b""
            result = result.put_leaf(beyond, leaf(beyond, kept))
        return result

    def punch(self, offset: int, length: int) -> FileData:
        """Zeros from offset for length; the size does not change. Absent pages cost nothing."""
        end = min(offset + length, self.size)
        result = self
        for number, _ in list(self.pages.items(offset // PAGE)):
            start, stop = max(offset, number * PAGE), min(end, (number + 1) * PAGE)
            if start >= stop:
                break
            zeros = bytes(stop - start)
            content = splice(result.page(number), start - number * PAGE, zeros)
            result = result.put_leaf(number, leaf(number, content))
        return result

    def read(self) -> bytes:
        content = bytearray(self.size)
        for number, (page, _) in self.pages.items():
            content[number * PAGE : number * PAGE + len(page)] = page
        return bytes(content)

    def read_range(self, offset: int, length: int) -> bytes:
        """Up to the end of the file; costs what it returns."""
        length = max(0, min(length, self.size - offset))
        pages = pages_of(offset, length)
        content = b"".join(self.page(number).ljust(PAGE, b"\0") for number in pages)
        start = offset % PAGE
        return content[start : start + length]


EMPTY = FileData(0, IntMap(), 0)


def chunks(offset: int, data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(page number, start in the page, bytes) of a write."""
    done = 0
    while done < len(data):
        number, start = divmod(offset + done, PAGE)
        size = min(PAGE - start, len(data) - done)
        yield number, start, data[done : done + size]
        done += size


def pages_of(offset: int, length: int) -> range:
    return range(offset // PAGE, (offset + length + PAGE - 1) // PAGE) if length else range(0)


def file_data(content: bytes) -> FileData:
    return EMPTY.write(0, content)
