"""could_survive: may this directory be what a power loss left? Slow, plain, and independent of the product.

`power` generates states that it can answer for: under `ext4` fewer than the kernel may leave. This
module answers the opposite question and errs on the other side: it accepts whatever the rules do
not exclude, byte by byte. So generated states must be members, and so must the states that a real
ext4 leaves; a real state that is no member shows a wrong rule. With the models it shares the names
of operations (`ops`) and no rule.

Where it is wider than `power`: any byte of a pending write may be there or not (R3, R9, E3, E4); a
size may be any that a partly written operation makes; a durable write keeps its own bytes and no
earlier ones (R8); under `ext4` new bytes may be zeros (blocks are allocated unwritten), E6 and E7
are not relied upon; under `xfs` sync() may leave data in the disk's cache (X6); fsync(f) commits only
up to the last operation that changed f's inode (the kernel skips the commit when that inode has
nothing in it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from chaoskit.disk.ops import DATA_KINDS, NAME_KINDS, ROOT, SYNC_KINDS, Op, Profile, Trace
from tests.disk.listings import Content

Names = dict[tuple[int, str], int]


def could_survive(trace: Trace, at: int, profile: Profile, listing: Mapping[str, Content]) -> bool:
    done = trace.ops[:at]
    kinds = _kinds(trace)
    if profile == "posix":
        worlds: Iterable[tuple[int, Names]] = ((at, names) for names in _posix_names(trace, done))
    else:
        first = _committed(done)
        worlds = ((cut, _named(trace, done[:cut])) for cut in range(first, at + 1))
    return any(_fits(trace, done, kinds, cut, profile, names, listing) for cut, names in worlds)


def _kinds(trace: Trace) -> dict[int, str]:
    kinds: dict[int, str] = {node.file: node.kind for node in trace.initial}
    born = {"mkdir": "dir", "symlink": "symlink", "create": "file"}
    kinds |= {op.file: born[op.kind] for op in trace.ops if op.kind in born}
    return kinds


def _named(trace: Trace, ops: Iterable[Op]) -> Names:
    names = {link: node.file for node in trace.initial for link in node.names}
    for op in ops:
        _rename_one(names, op)
    return names


def _rename_one(names: Names, op: Op) -> None:
    here, there = (op.parent, op.name), (op.parent2, op.name2)
    if op.kind in ("create", "mkdir", "symlink"):
        names[here] = op.file
    elif op.kind in ("unlink", "rmdir"):
        names.pop(here, None)
    elif op.kind == "link":
        names[there] = op.file
    elif op.kind == "rename" and names.get(there) != op.file:
        names.pop(here, None)
        names[there] = op.file


def _posix_names(trace: Trace, done: Sequence[Op]) -> Iterator[Names]:
    """Every set of naming operations that R2, R4, R5 and R6 allow to be there."""
    naming = [at for at, op in enumerate(done) if op.kind in NAME_KINDS]
    after = {at: _waits_for(trace, done, naming, at) for at in naming}
    durable = _with_all(after, {at for at in naming if _directory_synced(done, at)})
    free = [at for at in naming if at not in durable]
    for chosen in range(1 << len(free)):
        kept = durable | {at for bit, at in enumerate(free) if chosen >> bit & 1}
        if all(after[at] <= kept for at in kept):
            yield _named(trace, (done[at] for at in sorted(kept)))


def _waits_for(trace: Trace, done: Sequence[Op], naming: Sequence[int], at: int) -> set[int]:
    """Earlier operations on the same names (R5), and earlier moves of directories (R6)."""
    kinds = _kinds(trace)

    def moves(op: Op) -> bool:
        return op.kind == "rename" and kinds[op.file] == "dir"

    mine = _links(done[at])
    both = moves(done[at])
    return {
        other
        for other in naming
        if other < at and (mine & _links(done[other]) or (both and moves(done[other])))
    }


def _links(op: Op) -> set[tuple[int, str]]:
    here, there = (op.parent, op.name), (op.parent2, op.name2)
    both = {"link": {there}, "rename": {here, there}}
    return {link for link in both.get(op.kind, {here}) if link[0] >= 0}


def _with_all(after: Mapping[int, set[int]], chosen: set[int]) -> set[int]:
    while True:
        more = chosen.union(*(after[at] for at in chosen))
        if more == chosen:
            return chosen
        chosen = more


def _directory_synced(done: Sequence[Op], at: int) -> bool:
    homes = {parent for parent, _ in _links(done[at])}
    return any(op.kind == "sync" or (op.kind in SYNC_KINDS and op.file in homes) for op in done[at + 1 :])


def _committed(done: Sequence[Op]) -> int:
    """Metadata before this position are surely in ext4's journal."""
    first = 0
    for at, op in enumerate(done):
        if op.kind == "sync":
            first = at + 1
        elif op.kind in SYNC_KINDS or _durable(op):
            first = max([first, *(i + 1 for i in range(at + 1) if _changes_inode(done[i], op))])
    return first


def _changes_inode(op: Op, sync: Op) -> bool:
    if op.kind in NAME_KINDS:
        dirty = {op.file, op.parent, op.parent2, op.replaced}
        # A rename changes the moved file's times only: fdatasync does not wait for those.
        return sync.file in (dirty if sync.kind == "fsync" else dirty - {op.file}) or (
            op.kind == "create" and op.file == sync.file
        )
    return op.file == sync.file and op.kind in ("truncate", "allocate", "punch")


def _fits(
    trace: Trace,
    done: Sequence[Op],
    kinds: Mapping[int, str],
    cut: int,
    profile: Profile,
    names: Names,
    listing: Mapping[str, Content],
) -> bool:
    tree = dict(_paths(names, kinds))
    if tree.keys() != listing.keys():
        return False
    for path, number in tree.items():
        found = listing[path]
        if kinds[number] == "dir":
            fits = found is None
        elif kinds[number] == "symlink":
            fits = found == _target(trace, number)
        else:
            fits = isinstance(found, bytes) and _possible(trace, done, cut, profile, number, found)
        if not fits:
            return False
    return True


def _paths(names: Names, kinds: Mapping[int, str], home: int = ROOT) -> Iterator[tuple[str, int]]:
    for (parent, name), number in names.items():
        if parent == home:
            yield name, number
            if kinds[number] == "dir":
                for below, inner in _paths(names, kinds, number):
                    yield f"{name}/{below}", inner


def _target(trace: Trace, number: int) -> str:
    datas = [node.data for node in trace.initial if node.file == number]
    datas += [op.data for op in trace.ops if op.kind == "symlink" and op.file == number]
    return os.fsdecode(datas[0])


def _possible(
    trace: Trace, done: Sequence[Op], cut: int, profile: Profile, number: int, found: bytes
) -> bool:
    """Could the file hold these bytes?"""
    durable, pending = _since_sync(trace, done, number, flushes=profile != "xfs")
    if not _size_possible(len(durable), pending, cut, profile, len(found)):
        return False
    choices = [{byte} for byte in durable[: len(found)]]
    choices += [{0} for _ in range(len(found) - len(durable))]
    for _, op in pending:
        for i in _zeroed(op, len(found)):
            choices[i].add(0)
        for i, byte in enumerate(op.data[: max(0, len(found) - op.offset)], op.offset):
            choices[i] = {byte} if _durable(op) else choices[i] | {byte}
    return all(byte in choice for byte, choice in zip(found, choices, strict=True))


def _zeroed(op: Op, size: int) -> range:
    if op.kind == "truncate":
        return range(op.length, size)
    if op.kind == "punch":
        return range(op.offset, min(size, op.offset + op.length))
    return range(0)


def _since_sync(
    trace: Trace, done: Sequence[Op], number: int, *, flushes: bool
) -> tuple[bytes, list[tuple[int, Op]]]:
    """The file's durable content, and what was done to it since. `flushes`: whether sync() counts (X6)."""
    content = bytearray(*(node.data for node in trace.initial if node.file == number))
    durable, pending = bytes(content), list[tuple[int, Op]]()
    for at, op in enumerate(done):
        if op.kind in DATA_KINDS and op.file == number:
            _shape(content, op)
            pending.append((at, op))
        if (op.kind == "sync" and flushes) or (op.file == number and op.kind in SYNC_KINDS):
            durable, pending = bytes(content), []
    return durable, pending


def _shape(content: bytearray, op: Op) -> None:
    end = op.offset + (len(op.data) if op.kind == "write" else op.length)
    if op.kind == "truncate":
        del content[op.length :]
        content.extend(bytes(op.length - len(content)))
    elif op.kind == "punch":
        end = min(end, len(content))
        content[op.offset : end] = bytes(max(0, end - op.offset))
    elif (op.kind == "write" and op.data) or (op.kind == "allocate" and not op.keep_size):
        content.extend(bytes(max(0, end - len(content))))
        if op.kind == "write":
            content[op.offset : end] = op.data


def _size_possible(
    durable: int, pending: Sequence[tuple[int, Op]], cut: int, profile: Profile, size: int
) -> bool:
    """Sizes that some subset of the operations makes; the last one that counts may be partial."""
    sizes = {durable}
    partly = False  # the wanted size is reached within a write, if all later ones are lost
    for at, op in pending:
        if profile == "ext4" and at >= cut and not _durable(op):
            continue
        must = _durable(op) or (profile == "ext4" and op.kind in ("truncate", "allocate"))
        made, reached = _sizes_after(op, sizes, size)
        sizes = made if must else sizes | made
        shrinks = must and (op.kind == "truncate" or size < op.offset + len(op.data))
        partly = (partly and not shrinks) or (reached and not must)
    return size in sizes or partly


def _durable(op: Op) -> bool:
    return op.durable and op.kind == "write"


def _sizes_after(op: Op, sizes: set[int], wanted: int) -> tuple[set[int], bool]:
    if op.kind == "truncate":
        return {op.length}, False
    if op.kind == "write":
        end = op.offset + len(op.data)
        return {max(s, end) for s in sizes}, op.offset < wanted <= end and min(sizes) <= wanted
    if op.kind == "punch" or (op.kind == "allocate" and not op.keep_size):
        return {max(s, op.offset + op.length) for s in sizes}, False
    return sizes, False
