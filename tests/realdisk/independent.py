"""explains: could the model, if every page of a file is written back at a time of its own, leave this state?

`compare.every_choice` enumerates the choices of a model, where the new pages of a file appear in the order
of writing. The kernel writes back by offset, any range at any time, and the pages that are then there are too
many combinations to enumerate. This test takes the state instead, and asks for each page whether it has a
content that it had at some time, and whether the size fits (E3, X2, B2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chaoskit.disk.apply import apply_data
from chaoskit.disk.filedata import PAGE, FileData, Leaf, leaf
from chaoskit.disk.image import FileNode, Image, SymlinkNode
from chaoskit.disk.ops import Op
from chaoskit.disk.profiles.inplace import NOTHING, DataChoice, OrderedFile, written
from chaoskit.disk.profiles.journaled import SECTOR, JournaledModel
from tests.disk.listings import Content


def explains(model: JournaledModel, state: Mapping[str, Content], *, torn: bool = False) -> bool:
    """`torn`: one page may have sectors of two contents (E8)."""
    for cut in range(model.commit, model.at + 1):
        bare = model.bares[cut - model.commit]
        image = model.recovered(bare, cut)
        if _fits(model, image, bare, cut, state, torn=torn):
            return True
    return False


def _fits(
    model: JournaledModel, image: Image, bare: Image, cut: int, state: Mapping[str, Content], *, torn: bool
) -> bool:
    there = {path: (number, node) for path, number, node in image.walk()}
    if there.keys() != state.keys():
        return False
    for path, (number, node) in there.items():
        found = state[path]
        if isinstance(node, FileNode):
            replayed = node.data.digest != bare.data(number).digest  # from the log (B3)
            file = None if replayed else model.files.get(number)
            if not isinstance(found, bytes):
                return False
            found = _cleared(model.uncleared.get(number, {}), model.kill.data(number), found)
            if not _content_fits(file, node.data, cut, found, torn=torn):
                return False
        elif found != (node.target if isinstance(node, SymlinkNode) else None):
            return False
    return True


def _cleared(uncleared: Mapping[int, list[Leaf]], current: FileData, found: bytes) -> bytes:
    """X7: pages that show what a truncation did not clear, as if it had."""
    for page, contents in uncleared.items():
        if any(_matches(content, page, found) for content in contents):
            here = current.page(page).ljust(PAGE, b"\0")[: len(found) - page * PAGE]
            found = found[: page * PAGE] + here + found[page * PAGE + len(here) :]
    return found


def _content_fits(file: OrderedFile | None, durable: FileData, cut: int, found: bytes, *, torn: bool) -> bool:
    if found == durable.read():
        return True
    if file is None:
        return False
    if not file.rules.in_place:
        return any(_as_of(file, time, cut, found) for time in _times(file, cut))
    return _size_fits(file, cut, found) and _pages_fit(file, cut, found, NOTHING, torn=torn)


def _times(file: OrderedFile, cut: int) -> list[int]:
    return [NOTHING, *(at + 1 for at in file.positions if at < cut)]


def _as_of(file: OrderedFile, time: int, cut: int, found: bytes) -> bool:
    """B2: the size of this time, if a page was written back; the pages of this time or earlier."""
    committed = file.size_at(DataChoice(NOTHING, {}, NOTHING), cut).size
    size_fits = len(found) == committed or (
        len(found) == file.version_before(time).size and _shows_anything(file, time, found)
    )
    return size_fits and _pages_fit(file, cut, found, time)


def _shows_anything(file: OrderedFile, time: int, found: bytes) -> bool:
    writes = ((at, op) for at, op in zip(file.positions, file.ops, strict=True) if at < time)
    return any(
        _matches(file.version_before(at + 1).pages.get(page), page, found)
        for at, op in writes
        for page in (*written(op), *_rewritten(op, file.version_before(at).size))
    )


def _rewritten(op: Op, size: int) -> tuple[int, ...]:
    """B2: a write beyond the end of the file writes the page in which it ended again."""
    return (size // PAGE,) if op.offset > size and size % PAGE else ()


def _size_fits(file: OrderedFile, cut: int, found: bytes) -> bool:
    size, times = len(found), _times(file, cut)
    if file.only_writes and size < file.base.size:
        return False
    if size == file.size_at(DataChoice(NOTHING, {}, NOTHING), cut).size:
        return True
    for time in times:
        ahead = [later for later in times if later >= time] if file.rules.sizes_first else [time]
        for allocated in ahead:
            choice = DataChoice(time, {}, NOTHING, allocated)
            if size == file.size_at(choice, cut).size and file.rules.sizes_first:
                return True
        version = file.version_before(time)
        last = (size - 1) // PAGE
        ends_here = size == min((last + 1) * PAGE, version.size) and last in file.page_history
        if ends_here and (file.rules.sizes_first or _shows(file, last, time, found)):
            return True
    return False


def _shows(file: OrderedFile, page: int, since: int, found: bytes) -> bool:
    """X2: the last page is on disk, with what was written by then, or over it later."""
    times = [time for time in (at + 1 for at in file.positions) if time >= since]
    return any(_matches(file.version_before(time).pages.get(page), page, found) for time in times)


def _pages_fit(file: OrderedFile, cut: int, found: bytes, until: int, *, torn: bool = False) -> bool:
    wrong = [
        page
        for page in range(-(-len(found) // PAGE))
        if not any(_matches(each, page, found) for each in _leaves(file, page, cut, until))
    ]
    return not wrong or (torn and len(wrong) == 1 and _is_torn(file, wrong[0], cut, until, found))


def _is_torn(file: OrderedFile, page: int, cut: int, until: int, found: bytes) -> bool:
    """The first sectors are those of one content of the page, the others those of another one."""
    here = found[page * PAGE : (page + 1) * PAGE]
    leaves = [
        (content[0] if content else b"").ljust(PAGE, b"\0")[: len(here)]
        for content in _leaves(file, page, cut, until)
    ]
    cuts = range(SECTOR, len(here), SECTOR)
    heads = {at for at in cuts if any(here[:at] == each[:at] for each in leaves)}
    return any(here[at:] == each[at:] for at in heads for each in leaves)


def _leaves(file: OrderedFile, page: int, cut: int, until: int) -> Iterator[Leaf | None]:
    """A content that the page had, with later truncations and holes, in place or committed."""
    yield file.base.pages.get(page)
    if not file.rules.in_place:
        ends = [at for at in file.positions if at < (cut if file.ends_in(page, cut) else until)]
    else:
        mine = [at for at, op in zip(file.positions, file.ops, strict=True) if page in written(op)]
        has_block = file.settled(page) or file.had_block(page) or (mine and mine[0] < cut)
        ends = file.positions if has_block else [at for at in file.positions if at < cut]
        yield None if not file.settled(page) else file.base.pages.get(page)
    for at in (NOTHING, *ends):
        data = file.version_before(at + 1)
        yield data.pages.get(page)
        for position, op in zip(file.positions, file.ops, strict=True):
            if position > at and op.kind in ("truncate", "punch"):
                data = apply_data(data, op)
                yield data.pages.get(page)


def _matches(content: Leaf | None, page: int, found: bytes) -> bool:
    here = found[page * PAGE : (page + 1) * PAGE]
    mine = (content[0] if content else b"")[: len(here)]
    return leaf(page, here) == leaf(page, mine)
