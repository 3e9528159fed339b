"""A second opinion on what a trace means: deliberately not the product's own replay."""

from __future__ import annotations

from chaoskit.disk.ops import Op, Trace
from tests.disk.watching import Tree, Watched, tree


def joined(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


class Replayer:
    """The trace, applied in memory."""

    def __init__(self, trace: Trace) -> None:
        self.content: dict[int, bytearray] = {}
        self.entries: dict[int, dict[str, int]] = {}
        self.links: set[int] = set()
        self.last_path: dict[int, str] = {0: ""}
        for node in trace.initial:
            if node.kind == "dir":
                self.entries[node.file] = {}
            else:
                self.content[node.file] = bytearray(node.data)
            if node.kind == "symlink":
                self.links.add(node.file)
        for node in trace.initial:
            for parent, name in node.names:
                self.enter(parent, name, node.file)

    def enter(self, parent: int, name: str, number: int) -> None:
        self.entries[parent][name] = number
        self.last_path[number] = joined(self.last_path[parent], name)

    def apply(self, op: Op) -> None:
        if op.kind in ("create", "symlink"):
            self.content[op.file] = bytearray(op.data)
        if op.kind == "symlink":
            self.links.add(op.file)
        if op.kind == "mkdir":
            self.entries[op.file] = {}
        if op.kind in ("create", "mkdir", "symlink") and op.parent >= 0:
            self.enter(op.parent, op.name, op.file)
        if op.kind in ("unlink", "rmdir", "rename") and op.parent >= 0:
            assert self.entries[op.parent].pop(op.name) == op.file
        if op.kind in ("rename", "link"):
            assert self.entries[op.parent2].get(op.name2, -1) == op.replaced
            self.enter(op.parent2, op.name2, op.file)
        if op.kind in ("write", "truncate", "allocate", "punch"):
            self.change(op, self.content[op.file])

    def change(self, op: Op, content: bytearray) -> None:
        end = op.offset + op.length
        if op.kind == "truncate":
            content[op.length :] = bytes(max(0, op.length - len(content)))
        elif op.kind == "write":
            assert len(op.data) == op.length
            content.extend(bytes(max(0, op.offset - len(content))))
            content[op.offset : end] = op.data
        elif op.kind == "punch":
            stop = min(end, len(content))
            content[op.offset : stop] = bytes(max(0, stop - op.offset))
        elif not op.keep_size:
            content.extend(bytes(max(0, end - len(content))))

    def tree(self, number: int = 0, prefix: str = "") -> Tree:
        found: Tree = {}
        for name, child in self.entries[number].items():
            if name.endswith("-shm"):
                continue
            path = joined(prefix, name)
            if child in self.entries:
                found |= {path: None} | self.tree(child, path)
            else:
                mark = b"-> " if child in self.links else b""
                found[path] = mark + bytes(self.content[child])
        return found


def replay(trace: Trace, length: int | None = None) -> Tree:
    replayer = Replayer(trace)
    for op in trace.ops[:length]:
        replayer.apply(op)
    return replayer.tree()


def assert_replay_is_the_directory(watched: Watched) -> None:
    assert replay(watched.trace) == tree(watched.directory)
