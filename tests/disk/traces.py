"""A tiny builder of traces for tests: `Disk` does what a program would, and remembers it."""

from __future__ import annotations

from typing import Any

import msgspec

from chaoskit.disk.ops import ROOT, Node, Op, Trace


class Disk:
    def __init__(self, **files: bytes) -> None:
        self.ops: list[Op] = []
        self.closes: list[tuple[int, int]] = []
        self._count = 0
        self.numbers: dict[str, int] = {"": ROOT}
        self._initial = [Node(file=ROOT, kind="dir", names=())]
        for name, data in files.items():
            self._initial.append(Node(file=self._new(name), kind="file", names=((ROOT, name),), data=data))

    def trace(self) -> Trace:
        return Trace(initial=tuple(self._initial), ops=tuple(self.ops), closes=tuple(self.closes))

    @property
    def at(self) -> int:
        return len(self.ops)

    def _new(self, path: str) -> int:
        self._count += 1
        self.numbers[path] = self._count
        return self.numbers[path]

    def _home(self, path: str) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        return self.numbers[parent], name

    def _op(self, kind: Any, path: str, **fields: Any) -> int:
        op = Op(index=self.at, kind=kind, file=self.numbers[path], **fields)
        self.ops.append(op)
        return op.index

    def _born(self, kind: str, path: str, **fields: Any) -> int:
        self._new(path)
        parent, name = self._home(path)
        return self._op(kind, path, parent=parent, name=name, **fields)

    def create(self, path: str) -> int:
        return self._born("create", path)

    def mkdir(self, path: str) -> int:
        return self._born("mkdir", path)

    def symlink(self, path: str, target: str) -> int:
        return self._born("symlink", path, data=target.encode())

    def write(self, path: str, data: bytes, offset: int = 0, durable: bool = False) -> int:
        return self._op("write", path, data=data, offset=offset, length=len(data), durable=durable)

    def truncate(self, path: str, length: int = 0) -> int:
        return self._op("truncate", path, length=length)

    def allocate(self, path: str, offset: int, length: int, keep_size: bool = False) -> int:
        return self._op("allocate", path, offset=offset, length=length, keep_size=keep_size)

    def punch(self, path: str, offset: int, length: int) -> int:
        """As the interposer records it: the kernel demands KEEP_SIZE for a hole."""
        return self._op("punch", path, offset=offset, length=length, keep_size=True)

    def zero(self, path: str, offset: int, length: int) -> int:
        """FALLOC_FL_ZERO_RANGE without KEEP_SIZE: allocates up to its end."""
        return self._op("punch", path, offset=offset, length=length)

    def close(self, path: str) -> None:
        self.closes.append((self.at, self.numbers[path]))

    def fsync(self, path: str) -> int:
        return self._op("fsync", path)

    def fdatasync(self, path: str) -> int:
        return self._op("fdatasync", path)

    def sync(self) -> int:
        return self._op("sync", "")

    def unlink(self, path: str) -> int:
        parent, name = self._home(path)
        position = self._op("unlink", path, parent=parent, name=name)
        del self.numbers[path]
        return position

    def rmdir(self, path: str) -> int:
        parent, name = self._home(path)
        position = self._op("rmdir", path, parent=parent, name=name)
        del self.numbers[path]
        return position

    def link(self, old: str, new: str) -> int:
        (parent, name), (parent2, name2) = self._home(old), self._home(new)
        where = {"parent": parent, "name": name, "parent2": parent2, "name2": name2}
        position = self._op("link", old, **where)
        self.numbers[new] = self.numbers[old]
        return position

    def rename(self, old: str, new: str) -> int:
        (parent, name), (parent2, name2) = self._home(old), self._home(new)
        where = {"parent": parent, "name": name, "parent2": parent2, "name2": name2}
        position = self._op("rename", old, replaced=self.numbers.get(new, -1), **where)
        moved = {p: n for p, n in self.numbers.items() if p == old or p.startswith(old + "/")}
        for path, number in moved.items():
            del self.numbers[path]
            self.numbers[new + path[len(old) :]] = number
        return position


def not_returned(trace: Trace, at: int) -> Trace:
    """With a durable write at this position that is still under way."""
    ops = list(trace.ops)
    ops[at : at + 1] = [msgspec.structs.replace(op, durable=False) for op in ops[at : at + 1]]
    return msgspec.structs.replace(trace, ops=tuple(ops))
