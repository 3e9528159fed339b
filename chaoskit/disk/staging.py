"""From an image to a directory: the only module of the model that touches a disk.

`materialise` turns a directory that holds `previous` into `image` and writes only the difference. A
recovery in between changes the directory in unknown ways: `StagingDirectory` remembers what it wrote and
restores files that were changed since. It sets every mtime to a time in the past, in the order of the
last modifications, so that any later write shows, however coarse the clock is. Stores through a mapping do
not change the mtime on tmpfs: the shared memory of databases is always rewritten, and so is everything if the
target maps its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping

from chaoskit.disk.filedata import EMPTY, PAGE, FileData
from chaoskit.disk.image import DirNode, FileNode, Image, Object, SymlinkNode
from chaoskit.disk.ops import ROOT

LONG_AGO = 1_000_000_000 * 10**9
TICK = 10**7  # nanoseconds between two operations: the order of modifications is visible, and all are past
Times = Mapping[int, int]  # object -> the operation that last modified it
Ignore = Callable[[str], bool]
SHARED_MEMORY = ("-shm", "lock.mdb", "-lock")  # of SQLite and LMDB


def materialise(image: Image, directory: str | os.PathLike[str], previous: Image | None) -> None:
    """If `previous` is from another pass over the trace, it shares no names: everything is rebuilt."""
    root = os.fspath(directory)
    if previous is None or previous.names is not image.names:
        _empty(root)
        _Builder(image, root).fill(ROOT, root)
    elif previous.nodes is not image.nodes:
        _Change(previous, image, root).carry_out()


def set_times(image: Image, directory: str | os.PathLike[str], times: Times) -> None:
    """Gives everything the modification time that its last operation had, at least in order."""
    root = os.fspath(directory)
    for path, number, node in image.walk():
        if not isinstance(node, SymlinkNode):
            when = time_of(number, times)
            os.utime(f"{root}/{path}", ns=(when, when))


def time_of(number: int, times: Times) -> int:
    return LONG_AGO + TICK * (times[number] + 1 if number in times else 0)


def _scan(root: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(root) as entries:
        for entry in entries:
            path = below + entry.name
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _scan(entry.path, path + "/")


def _empty(root: str) -> None:
    os.makedirs(root, exist_ok=True)
    for name in os.listdir(root):
        _remove(f"{root}/{name}")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path)


class _Builder:
    """Creates missing objects; an object with a second name gets a hard link."""

    def __init__(self, image: Image, root: str) -> None:
        self.image = image
        self.root = root
        self.placed: dict[int, str] = {}  # file -> a path where it already exists

    def build(self, number: int, path: str) -> None:
        node = self.image.nodes.get(number)
        if isinstance(node, DirNode):
            os.mkdir(path)
            self.fill(number, path)
        elif isinstance(node, SymlinkNode):
            os.symlink(node.target, path)
        elif number in self.placed:
            os.link(self.placed[number], path)
        elif isinstance(node, FileNode):
            write_file(path, EMPTY, node.data, os.O_CREAT | os.O_EXCL)
            if len(node.links) > 1:
                self.placed[number] = path

    def fill(self, number: int, path: str) -> None:
        for name, child in self.image.directory(number).entries.values():
            self.build(child, f"{path}/{name}")


class _Change:
    """Applies the difference between two images: removals, then contents, then additions."""

    def __init__(self, old: Image, new: Image, root: str) -> None:
        self.old = old
        self.new = new
        self.root = root
        self.nodes = list(old.nodes.diff(new.nodes))
        self._stays: dict[int, str | None] = {ROOT: root}

    def carry_out(self) -> None:
        added: list[tuple[str, int]] = []
        for number, old, new in self.nodes:
            home = self.stays(number)
            if isinstance(old, DirNode) and isinstance(new, DirNode) and home is not None:
                added += self._clear_entries(home, old, new)
        builder = _Builder(self.new, self.root)
        for number, old, new in self.nodes:
            if isinstance(old, FileNode) and isinstance(new, FileNode):
                self._update(builder, number, old, new)
        for path, child in added:
            builder.build(child, path)

    def stays(self, number: int) -> str | None:
        """The path of a directory that has the same path in both images."""
        if number not in self._stays:
            self._stays[number] = self._place(self.old.nodes.get(number), self.new.nodes.get(number))
        return self._stays[number]

    def _place(self, old: Object | None, new: Object | None) -> str | None:
        if not isinstance(old, DirNode) or not isinstance(new, DirNode):
            return None
        if not new.links or old.links != new.links:
            return None
        parent, name = new.links[0]
        home = self.stays(parent)
        return f"{home}/{name}" if home is not None else None

    def _clear_entries(self, home: str, old: DirNode, new: DirNode) -> list[tuple[str, int]]:
        added: list[tuple[str, int]] = []
        for _, before, after in old.entries.diff(new.entries):
            if before == after:
                continue
            if before is not None:
                _remove(f"{home}/{before[0]}")
            if after is not None:
                added.append((f"{home}/{after[0]}", after[1]))
        return added

    def _update(self, builder: _Builder, number: int, old: FileNode, new: FileNode) -> None:
        for parent, name in new.links:
            home = self.stays(parent) if (parent, name) in old.links else None
            if home is not None:
                path = f"{home}/{name}"
                write_file(path, old.data, new.data)
                builder.placed[number] = path
                return


def write_file(path: str, old: FileData, new: FileData, flags: int = 0) -> None:
    """Writes the pages that differ from `old`, the file's current content."""
    if old is new and not flags:
        return
    handle = os.open(path, os.O_RDWR | flags, 0o644)
    try:
        if old.size > new.size:
            os.ftruncate(handle, new.size)
        for start, content in _runs(old, new):
            os.pwrite(handle, content, start)
        if old.size < new.size:
            os.ftruncate(handle, new.size)
    finally:
        os.close(handle)


def _write_new(path: str, content: bytes | bytearray) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        written = os.write(handle, content)
        assert written == len(content), f"{path}: {written} of {len(content)} bytes written"
    finally:
        os.close(handle)


def _runs(old: FileData, new: FileData) -> Iterator[tuple[int, bytes]]:
    """The bytes that differ, adjacent pages joined: a call costs more than the page it writes."""
    start, pages = 0, list[bytes]()
    for number, _, after in old.pages.diff(new.pages):  # in order
        at = number * PAGE
        if pages and at != start + len(pages) * PAGE:
            yield start, b"".join(pages)
            pages = []
        if not pages:
            start = at
        page = after[0] if after else b""
        if len(page) != PAGE:  # stored without its trailing zeros
            page = page.ljust(min(PAGE, max(0, new.size - at)), b"\0")
        pages.append(page)
    if pages:
        yield start, b"".join(pages)


class _Flat:
    """The bytes of one version of a file, updated to another version at the cost of the difference."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._data = EMPTY

    def become(self, data: FileData) -> None:
        if data.size < len(self.content):
            del self.content[data.size :]
        self.content.extend(bytes(data.size - len(self.content)))
        for start, content in _runs(self._data, data):
            self.content[start : start + len(content)] = content
        self._data = data


class StagingDirectory:
    """A directory that is set to one image after another, whatever changed it in between."""

    def __init__(
        self, directory: str | os.PathLike[str], always: Ignore = lambda p: p.endswith(SHARED_MEMORY)
    ) -> None:
        self.root = os.fspath(directory)
        self.always = always
        self._shown: Image | None = None
        self._marks: dict[str, tuple[int, int, int]] = {}
        self._flat: dict[str, _Flat] = {}

    @property
    def parent(self) -> str:
        return os.path.dirname(self.root)

    def move_to(self, directory: str | os.PathLike[str]) -> None:
        """The same content under another name."""
        new = os.fspath(directory)
        if new != self.root and os.path.isdir(self.root):
            os.rename(self.root, new)
        self.root = new

    def show(self, image: Image, times: Times | None = None, *, mapped: bool = False) -> None:
        previous = self._shown if self._shown and self._put_back(self._shown, mapped) else None
        materialise(image, self.root, previous)
        self._mark(image, times or {})
        self._shown = image

    def _put_back(self, shown: Image, mapped: bool) -> bool:
        """Restores files one by one; returns False if that is not enough."""
        if mapped:
            return False
        now = {path: _mark_of(entry) for path, entry in _scan(self.root)}
        if now == self._marks and not any(map(self.always, now)):
            return True
        for path in [p for p in now if p not in self._marks]:
            _remove(f"{self.root}/{path}")
        nodes = {path: node for path, _, node in shown.walk()}
        for path, mark in self._marks.items():
            if now.get(path) == mark and not self.always(path):
                continue
            node = nodes.get(path)
            if not isinstance(node, FileNode) or len(node.links) > 1:
                return False
            _remove(f"{self.root}/{path}")
            if not os.path.isdir(os.path.dirname(f"{self.root}/{path}")):
                return False
            flat = self._flat.setdefault(path, _Flat())
            flat.become(node.data)
            _write_new(f"{self.root}/{path}", flat.content)
        return True

    def _mark(self, image: Image, times: Times) -> None:
        numbers = {path: number for path, number, _ in image.walk()}
        self._marks = {}
        for path, entry in _scan(self.root):
            if entry.is_symlink():
                self._marks[path] = _mark_of(entry)
                continue
            when = time_of(numbers[path], times)
            if entry.stat(follow_symlinks=False).st_mtime_ns != when:
                os.utime(entry.path, ns=(when, when))
            number, size, _ = _mark_of(entry)
            self._marks[path] = number, size, 0 if entry.is_dir(follow_symlinks=False) else when


def _mark_of(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    """Changes with every write, truncation or replacement; a directory's own times do not matter."""
    status = entry.stat(follow_symlinks=False)
    if entry.is_dir(follow_symlinks=False):
        return status.st_ino, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
