"""Random small programs for properties: files, names, directories, links, every kind of sync."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.disk.traces import Disk

FILES = ("a", "b", "d/a")
OFFSETS = st.sampled_from(("start", "end", "middle", "beyond", "far"))
LENGTHS = st.sampled_from((1, 10, 100, 512, 4096, 5000))
STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(FILES), OFFSETS, LENGTHS, st.booleans()),
    st.tuples(st.just("write"), st.sampled_from(FILES), OFFSETS, LENGTHS, st.just(False)),
    st.tuples(st.sampled_from(("truncate", "allocate", "punch", "zero")), st.sampled_from(FILES), LENGTHS),
    st.tuples(st.just("clear"), st.sampled_from(FILES)),
    st.tuples(st.sampled_from(("rename", "link")), st.sampled_from(FILES), st.sampled_from(FILES)),
    st.tuples(st.just("unlink"), st.sampled_from(FILES)),
    st.tuples(st.just("move directory")),
    st.tuples(st.sampled_from(("make or remove directory", "symlink"))),
    st.tuples(st.sampled_from(("fsync", "fdatasync")), st.sampled_from((*FILES, "", "d"))),
    st.tuples(st.just("sync")),
)
PROGRAMS = st.lists(STEPS, min_size=1, max_size=9)


INITIAL = {"a": b"A" * 150, "b": b"B" * 4200}


def run(steps: list[tuple]) -> Disk:  # type: ignore[type-arg]
    disk = Disk(**INITIAL)
    sizes = initial_sizes()
    for count, step in enumerate(steps):
        do(disk, sizes, step, bytes([ord("0") + count]))
    return disk


def initial_sizes() -> dict[int, int]:
    return {number: len(data) for number, data in enumerate(INITIAL.values(), start=1)}


def do(disk: Disk, sizes: dict[int, int], step: tuple, byte: bytes) -> None:  # type: ignore[type-arg]
    kind, *rest = step
    if kind == "sync":
        disk.sync()
    elif kind == "move directory":
        _move(disk)
    elif kind == "make or remove directory":
        disk.rmdir("t") if "t" in disk.numbers else disk.mkdir("t")
    elif kind == "symlink":
        if "s" not in disk.numbers:
            disk.symlink("s", "a")
    elif kind in ("fsync", "fdatasync"):
        if rest[0] in disk.numbers:
            getattr(disk, kind)(rest[0])
    elif kind in ("rename", "link", "unlink"):
        _name(disk, kind, rest)
    else:
        _data(disk, sizes, kind, rest, byte)


def _move(disk: Disk) -> None:
    if "d" in disk.numbers and "e" not in disk.numbers:
        disk.rename("d", "e")
    elif "e" in disk.numbers:
        disk.rename("e", "d")


def _name(disk: Disk, kind: str, paths: list[str]) -> None:
    if paths[0] not in disk.numbers:
        return
    if kind == "unlink":
        disk.unlink(paths[0])
    elif paths[1].rpartition("/")[0] in disk.numbers and paths[0] != paths[1]:
        if kind == "rename" and disk.numbers.get(paths[1]) != disk.numbers[paths[0]]:
            disk.rename(*paths)
        elif kind == "link" and paths[1] not in disk.numbers:
            disk.link(*paths)


def _data(disk: Disk, sizes: dict[int, int], kind: str, rest: list, byte: bytes) -> None:  # type: ignore[type-arg]
    path = rest[0]
    if path not in disk.numbers:
        if path.startswith("d/") and "d" not in disk.numbers:
            if "e" in disk.numbers:
                return
            disk.mkdir("d")
        disk.create(path)
    number = disk.numbers[path]
    size = sizes.get(number, 0)
    if kind == "clear":
        disk.truncate(path)
        sizes[number] = 0
    elif kind == "truncate":
        disk.truncate(path, rest[1])
        sizes[number] = rest[1]
    elif kind == "allocate":
        disk.allocate(path, 0, rest[1])
        sizes[number] = max(size, rest[1])
    elif kind == "punch":
        disk.punch(path, 50, rest[1])
    elif kind == "zero":
        if size:
            disk.zero(path, 0, min(size, rest[1]))  # beyond the end it would be recorded as a write
    else:
        where, length, durable = rest[1:]
        far = size // 4096 * 4096 + 4 * 4096
        offset = {"start": 0, "end": size, "middle": size // 2, "beyond": size + 100, "far": far}[where]
        disk.write(path, byte * length, offset, durable)
        sizes[number] = max(size, offset + length)
