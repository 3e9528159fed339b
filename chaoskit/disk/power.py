"""Power loss: the states that a power loss at one position of a trace could have left.

Method
------
A kill loses nothing that was written. A power loss loses data that was not made durable, in whole or in
part, in any order that the file system allows. Durability by call:

| call | durable after it | still not durable |
|---|---|---|
| write | nothing | all of it |
| write through O_SYNC, O_DSYNC | its pages, and the size | the file's name (`posix`) |
| fdatasync(f) | data, and the size | the file's name (`posix`) |
| fsync(f) | data and inode | the name (`posix`); `ext4` commits earlier names too |
| fsync(dir) | creates, renames, links, unlinks in it so far | file data; the directory's own name |
| sync, syncfs | everything | |
| rename, close, SIGKILL | nothing more | |

*Pending*: done and not durable. *Position* `at`: the first `at` operations are done. A state is the
durable content with some pending operations applied; the profiles differ in which ones.

Profile `posix` (strict): only the contract above. No data is invented: every byte is a durable one,
a written one, or a zero where the file was not written before.
 R1  fsync, fdatasync of a file make its data and its size durable, growth and truncation alike
     (fdatasync(2) names ftruncate as a change that it must flush); its names stay pending.
 R2  fsync of a directory makes the entries in it durable so far; not the data, nor its own name.
 R3  Pending data operations of a file persist in any subset, whatever their order: blocks of a
     truncated file are reused in place on file systems without a journal, so even a later write
     may be there without the earlier truncation. Names persist independently of data.
 R4  rename is atomic, and durable with either of its directories: no file system in use on Linux
     splits it, so a warning about one that does would not be useful.
 R5  Operations on one name persist in order: an entry has a value that it had at some time.
 R6  Moves of directories persist in order: otherwise a subset of them could make a cycle.
 R7  The size may persist without the data: unwritten bytes read as zeros.
 R8  A durable write (O_SYNC, O_DSYNC) makes the file's earlier data durable with it. The contract
     covers its own bytes only, but files with both kinds of writes are too rare to report this.
 R9  The last write may be torn at any byte: the rest absent, zeros (where the file grew), or old. So may a
     durable write that has not returned.

Profiles `ext4`, `xfs` and `btrfs`, each with its defaults and 4 KiB blocks, as measured on Linux 6.18
(`tests/realdisk`): a state is generated only if one execution of the real file system explains it. A finding
here is a bug. At any time, unknown to the program, the kernel may commit metadata or write back data.

`ext4` (data=ordered, delalloc, auto_da_alloc, dioread_nolock). Zeros in place of new data (E3, E6, E7) need
Linux 5.6 or newer, or the option dioread_nolock.
 E1  Metadata is journaled in order: names, truncations, allocations and sizes persist as a prefix
     of the sequence in which they happened (jbd2 commits whole transactions).
 E2  fsync or fdatasync of a file makes its data durable, and all metadata up to the last change of that
     file's inode; fdatasync ignores times. If that was committed before, it commits nothing. A hole beyond
     the end of the file changes nothing. (Nor does a write in place within some milliseconds of the latest
     change, because a clock tick has only one time: the model always takes it for a change.)
 E3  A page without a block gets one when it is written back; the size on disk grows with it. The kernel
     writes back by offset, not in the order of writing, and any part of a file at any time: a page may be
     there without those before it, or without those that were written before. The block counts as unwritten
     until its data is on disk *and* a later commit says so. A new file may therefore be empty, shorter, have
     holes, or be as long as it should be and full of zeros.
 E4  A page that has a block is overwritten in place, at any time, whatever the journal does: each
     such page shows its content at some time since it was durable, independently of the others.
 E5  A program writes page by page. The size on disk moves at once, as metadata, over a page that already
     has a block, and its data comes later: an append may end in zeros, or at the end of that block. (With
     some folios in the page cache it does not move at once; the model always moves it.) Truncate,
     fallocate and punch are metadata; they do not write back what was written before. A truncation clears
     the rest of its last block in place (E4), even if the new size is lost, and so does a hole that covers
     no whole page. A hole or an allocation moves the size on disk to its own end, if that was smaller.
 E6  rename over an existing file allocates blocks for the renamed one first (auto_da_alloc), so that it is
     never empty. It does not wait for the data: the file may be full of zeros.
 E7  A file truncated to zero and written again gets its blocks when it is first closed (auto_da_alloc);
     again not its data. A file that stays open may be empty.
 E8  A write in place may be torn between sectors, and its later pages may be there without the first.
     A write that makes the file longer is torn where its pages begin to need blocks (E5), be that block
     durable or only written back. (Between other pages, too, if a part is written back: not generated.)
 E9  sync writes everything.
 E10 A durable write (O_SYNC, O_DSYNC) makes its own pages durable, not those that were written before. While
     it is under way, it may be torn if it overwrites in place, and else leave zeros (E3).

`xfs`
 X1  Metadata is logged in order, as E1. fsync and fdatasync as E2, but a rename or link of a file is a change
     for which its fdatasync waits, too: the name is durable after it. Writes in place as E4, durable writes
     as E10, without zeros.
 X2  The size on disk grows when new data is on disk, not before, up to that data: a new file may be empty or
     shorter, and an append may be missing. The order is that of E3: a file may have holes, but it does not
     end in zeros. An allocation that does not change the size that the program sees does not change the one
     on disk either.
 X3  rename over an existing file waits for nothing: the file may be empty. So may one that was truncated
     and written again, whether it was closed or not.
 X4  A write that makes the file longer is torn at the end of the block that the file already has, durable or
     only written back, if it begins there. That block counts before the new ones do.
 X5  A truncation or an allocation that sets the size first writes back what lies beyond the size on disk.
     Punching a hole writes back the pages that it touches, so that the file may end there. (Of this the model
     knows, but generates no states.)
 X6  sync writes everything, but does not flush the disk's own cache if no metadata is left to write: data
     overwritten in place can still be lost, until the next fsync of a file.
 X7  A truncation clears the rest of its last block in memory, and its commit does not wait for that. If the
     file then grows without a write to that block, the old bytes may be back, until the file is synced. (Of
     this, too, the model knows, but generates no states.)

`btrfs`
 B1  A commit makes names, sizes and truncations so far durable, and the data that was written back until
     then. Names that were not synced persist as a prefix of the sequence in which they happened.
 B2  Nothing is overwritten in place, and what one writeback finds side by side is there as a whole or not at
     all. Each page has a content that it had at some time, independently of pages elsewhere in the file: the
     kernel writes back by offset, any part at any time. When a writeback ends, a commit stores the size that
     the file has by then, so that a lost append may read as zeros if an earlier writeback of other pages was
     still going on. (A write beyond the end of the file writes the page in which it ended again: that may be
     the earlier writeback.) No single write is torn, not even one under way. (It may be, between pages, if a
     part is written back. A truncation writes back the block that it ends in: that one may be newer than the
     others. These are not generated.)
 B3  fsync or fdatasync of a file writes it to a log: its data, its names, and the new directories above it,
     without their entries. Nothing else becomes durable. If the file was renamed, the directory that it was
     in is logged, too, and so is the new name of a file whose old name it has: if that is in a directory
     which is neither committed nor logged, the file is lost. fsync of a directory logs its entries: a new
     file among them is empty, and one that was renamed into it keeps its old name as well, if that one was
     committed.
     The sync of something unchanged logs nothing.
 B4  After that, renames and links of logged objects, or out of logged directories, are written to the log
     with the next sync of anything.
 B5  rename over an existing file waits for nothing, as X3. sync commits.

Recipes by generator: keep everything, drop everything unsynced (`whole`); drop one or keep one, the
latest first (`singles`); names without data, data without names (`apart`); a file without an earlier write,
or only what lies below one in the file (`reordered`); tear the last write, or the last in place (`torn`), or
a durable one that has not returned (`under_way`); `pairs`; seeded `subsets`. `power_states` decides where and
in which order to use them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import combinations

import msgspec

from chaoskit.disk.ops import Profile, Trace
from chaoskit.disk.profiles.btrfs import BtrfsModel
from chaoskit.disk.profiles.inplace import EXT4, XFS
from chaoskit.disk.profiles.journaled import JournaledModel
from chaoskit.disk.profiles.posix import PosixModel
from chaoskit.disk.recipe import Candidate, Model, Recipe

WINDOW = 48  # only the latest pending operations are examined one by one: they are the likely losses
RECENT = 8  # ... and for zeros in place of their data, or another order, only these
PAIRED = 10  # ... and of the latest of these, every pair
SUBSETS = 64  # seeded subsets per round

RecipeGenerator = Callable[[Model, random.Random], Iterator[Recipe]]


def model_at(trace: Trace, at: int, profile: Profile, *, under_way: bool = False) -> Model:
    """`under_way`: operation `at` has begun."""
    model = new_model(trace, profile)
    for op in trace.ops[:at]:
        model.advance(op)
    if under_way:
        model.begin(trace.ops[at])
    return model


def new_model(trace: Trace, profile: Profile) -> Model:
    if profile == "posix":
        return PosixModel(trace)
    if profile == "btrfs":
        return BtrfsModel(trace)
    return JournaledModel(trace, {"ext4": EXT4, "xfs": XFS}[profile])


def rebuild(trace: Trace, at: int, profile: Profile, recipe: Recipe) -> Candidate:
    model = model_at(trace, at, profile, under_way=recipe.under_way)
    return Candidate(at, profile, recipe, model.build(recipe))


def lost_operations(trace: Trace, candidate: Candidate) -> list[int]:
    """Positions of the operations that are lost, at least in part, in this state."""
    recipe = candidate.recipe
    return model_at(trace, candidate.at, candidate.profile, under_way=recipe.under_way).lost(recipe)


def whole(model: Model, rng: random.Random) -> Iterator[Recipe]:
    yield Recipe("kill")
    if model.latest(1):
        yield Recipe("nothing")


def singles(model: Model, rng: random.Random) -> Iterator[Recipe]:
    latest = model.latest(WINDOW)
    if len(latest) > 1:  # with a single operation, `whole` has both states
        yield from (Recipe("without", (position,)) for position in latest)
        yield from (Recipe("keeping", (position,)) for position in latest)


def apart(model: Model, rng: random.Random) -> Iterator[Recipe]:
    if model.latest(1):
        yield Recipe("names")
        yield Recipe("sizes")
        yield Recipe("data")
    yield from (Recipe("zeros", (position,)) for position in model.unwritten(RECENT))


def torn(model: Model, rng: random.Random) -> Iterator[Recipe]:
    position = model.last_write()
    if position is not None:
        yield from model.tears(position)
    earlier = model.overwritten(RECENT)
    if earlier is not None:
        yield from model.tears(earlier)


def reordered(model: Model, rng: random.Random) -> Iterator[Recipe]:
    yield from model.reordered(RECENT)


def under_way(model: Model, rng: random.Random) -> Iterator[Recipe]:
    """The latest operation is a durable write that has not returned: all of it, a part, or its size."""
    position = model.at - 1
    recipes = [Recipe("kill"), Recipe("keeping", (position,)), Recipe("data"), Recipe("sizes")]
    recipes += [Recipe("zeros", (each,)) for each in model.unwritten(RECENT)]
    recipes += torn(model, rng)
    yield from (msgspec.structs.replace(recipe, under_way=True) for recipe in recipes)


def pairs(model: Model, rng: random.Random) -> Iterator[Recipe]:
    """Keeping a pair differs from losing the others: a kept operation may depend on earlier ones."""
    latest = sorted(model.latest(PAIRED))
    if len(latest) > 2:
        yield from (Recipe("without", pair) for pair in combinations(latest, 2))
        yield from (Recipe("keeping", pair) for pair in combinations(latest, 2))


def subsets(model: Model, rng: random.Random) -> Iterator[Recipe]:
    """Random subsets of the latest pending operations, over all older ones or over none."""
    latest = sorted(model.latest(WINDOW))
    for _ in range(min(SUBSETS, 1 << len(latest) >> 2) if len(latest) > 4 else 0):
        chosen = tuple(at for at in latest if rng.random() < 0.5)
        yield Recipe(rng.choice(("without", "keeping")), chosen)
