"""The ways in which programs save files, and single rules of the models, as short programs."""

from __future__ import annotations

from tests.realdisk.performing import RealDisk

PAGE = 4096
INITIAL = {"a": b"A" * 150, "b": b"B" * 2 * PAGE}


def create_and_write(disk: RealDisk) -> None:
    disk.create("new")
    disk.write("new", b"n" * 5000)


def rename_over(disk: RealDisk) -> None:
    disk.create("temp")
    disk.write("temp", b"n" * 5000)
    disk.close("temp")
    disk.rename("temp", "a")


def rename_over_and_sync_directory(disk: RealDisk) -> None:
    rename_over(disk)
    disk.fsync("")


def sync_and_rename_over(disk: RealDisk) -> None:
    disk.create("temp")
    disk.write("temp", b"n" * 5000)
    disk.fsync("temp")
    disk.close("temp")
    disk.rename("temp", "a")


def append_within_block(disk: RealDisk) -> None:
    disk.write("a", b"x" * 100, 150)
    disk.create("z")


def append_across_blocks(disk: RealDisk) -> None:
    disk.write("a", b"x" * 5000, 150)
    disk.create("z")


def append_then_synced_index(disk: RealDisk) -> None:
    disk.write("a", b"x" * 6000, 150)
    disk.create("temp")
    disk.write("temp", b"i" * 20)
    disk.fsync("temp")
    disk.close("temp")
    disk.rename("temp", "index")
    disk.fsync("")


def truncate_and_rewrite(disk: RealDisk) -> None:
    disk.truncate("a")
    disk.write("a", b"n" * 100)
    disk.close("a")
    disk.create("z")


def rewrite_then_append(disk: RealDisk) -> None:
    disk.truncate("a")
    disk.write("a", b"n" * PAGE)
    disk.close("a")
    disk.fsync("a")
    disk.write("a", b"x" * 100, PAGE)
    disk.close("a")
    disk.create("z")
    disk.fsync("z")


def cut_then_durable_write(disk: RealDisk) -> None:
    """xfs: what the truncation cut off in the middle of a block may be back (X7)."""
    disk.truncate("b", 1)
    disk.mkdir("d")
    disk.fsync("")
    disk.write("b", b"w" * 512, 4 * PAGE, durable=True)


def patch_cut_then_durable_write(disk: RealDisk) -> None:
    disk.zero("b", 0, 10)
    disk.truncate("b", 1)
    disk.fsync("")
    disk.mkdir("d")
    disk.write("b", b"w" * 512, 4 * PAGE, durable=True)


def overwrite_twice_in_one_tick(disk: RealDisk) -> None:
    """ext4, xfs: the second one changes no time, so that its sync may have nothing to commit (E2)."""
    disk.write("b", b"1" * 10, 0, durable=True)
    disk.truncate("a")
    disk.write("b", b"2" * 10, PAGE)
    disk.fsync("b")


def overwrite_and_truncate(disk: RealDisk) -> None:
    disk.write("a", b"1" * 5000, 0)
    disk.truncate("a", 5000)
    disk.create("z")


def write_and_allocate(disk: RealDisk) -> None:
    disk.create("n")
    disk.write("n", b"1" * 100)
    disk.allocate("n", 0, 2 * PAGE)


def two_pages_in_place(disk: RealDisk) -> None:
    disk.write("b", b"1" * 2 * PAGE, 0)


def sync_without_metadata(disk: RealDisk) -> None:
    disk.write("a", b"w" * 50, 0)
    disk.fdatasync("a")
    disk.rename("b", "c")
    disk.write("a", b"x" * 50, 0)
    disk.fdatasync("a")


def patch_after_sync(disk: RealDisk) -> None:
    disk.create("temp")
    disk.write("temp", b"n" * 5000)
    disk.fsync("temp")
    disk.write("temp", b"p" * 100, 0)
    disk.close("temp")
    disk.rename("temp", "a")


def durable_write(disk: RealDisk) -> None:
    disk.write("b", b"1" * PAGE, 0)
    disk.write("b", b"2" * PAGE, PAGE, durable=True)


def rollback_journal(disk: RealDisk) -> None:
    disk.create("journal")
    disk.write("journal", b"J" * PAGE)
    disk.fdatasync("journal")
    disk.write("b", b"1" * PAGE, 0)
    disk.fdatasync("b")
    disk.close("journal")
    disk.unlink("journal")


def move_and_sync_directory(disk: RealDisk) -> None:
    """btrfs: both names are there."""
    disk.mkdir("d")
    disk.sync()
    disk.rename("a", "d/a")
    disk.fsync("d")


def move_and_sync_both(disk: RealDisk) -> None:
    move_and_sync_directory(disk)
    disk.fsync("d/a")


def take_the_name_of_a_renamed_file(disk: RealDisk) -> None:
    disk.rename("b", "c")
    disk.create("b")
    disk.write("b", b"n" * 100)
    disk.fsync("b")


def hole_in_a_new_file(disk: RealDisk) -> None:
    disk.create("n")
    disk.write("n", b"1" * 5000)
    disk.punch("n", 50, 10)
    disk.fsync("b")


def empty_the_log_with_a_hole(disk: RealDisk) -> None:
    disk.write("b", b"1" * 2 * PAGE, 0)
    disk.fdatasync("b")
    disk.punch("b", 0, 2 * PAGE)
    disk.write("b", b"2" * 50, 0)
    disk.fdatasync("b")


def hole_beyond_the_end(disk: RealDisk) -> None:
    """It changes nothing that fdatasync waits for."""
    disk.create("n")
    disk.fsync("n")
    disk.mkdir("d")
    disk.punch("n", 50, PAGE)
    disk.fdatasync("n")


def hole_beyond_the_end_and_fsync(disk: RealDisk) -> None:
    disk.create("n")
    disk.fsync("n")
    disk.mkdir("d")
    disk.punch("n", 50, PAGE)
    disk.fsync("n")


def low_then_high(disk: RealDisk) -> None:
    disk.create("n")
    disk.fsync("n")
    disk.write("n", b"1" * PAGE)
    disk.write("n", b"2" * PAGE, 4 * PAGE)
    disk.fdatasync("n")


def high_then_low(disk: RealDisk) -> None:
    """The kernel writes back by offset."""
    disk.create("n")
    disk.fsync("n")
    disk.write("n", b"1" * PAGE, 4 * PAGE)
    disk.write("n", b"2" * PAGE)
    disk.fdatasync("n")


def record_and_header_under_one_sync(disk: RealDisk) -> None:
    """btrfs: the header may be new and the record missing."""
    disk.write("b", b"r" * 50, 4 * PAGE)
    disk.write("b", b"h" * PAGE)
    disk.fdatasync("b")


def append_page_by_page(disk: RealDisk) -> None:
    """btrfs: a commit stores the size, though the second page is not on disk."""
    disk.create("n")
    disk.fsync("n")
    disk.write("n", b"1" * PAGE)
    disk.write("n", b"2" * PAGE, PAGE)
    disk.fdatasync("n")


def append_in_two_writes(disk: RealDisk) -> None:
    disk.create("n")
    disk.write("n", b"1" * 3000)
    disk.write("n", b"2" * 3000, 3000)
    disk.fsync("n")


def durable_appends(disk: RealDisk) -> None:
    disk.create("n")
    disk.fsync("n")
    for count in range(2):
        disk.write("n", b"%d" % count * PAGE, count * PAGE, durable=True)


def take_the_name_of_a_file_moved_to_a_new_directory(disk: RealDisk) -> None:
    """btrfs: the moved file is lost (B3)."""
    disk.mkdir("d")
    disk.rename("b", "d/b")
    disk.create("b")
    disk.write("b", b"n" * 50)
    disk.fsync("b")


def rename_and_sync_the_data(disk: RealDisk) -> None:
    """xfs: the name is durable, ext4: it is not."""
    disk.create("temp")
    disk.write("temp", b"n" * 5000)
    disk.fdatasync("temp")
    disk.rename("temp", "a")
    disk.fdatasync("a")


def link_and_sync_the_data(disk: RealDisk) -> None:
    disk.link("a", "c")
    disk.fdatasync("a")


def queue(disk: RealDisk) -> None:
    """btrfs: both names may be there, for a new file, too."""
    disk.mkdir("d")
    disk.mkdir("e")
    disk.sync()
    disk.create("d/n")
    disk.write("d/n", b"n" * 50)
    disk.fsync("d/n")
    disk.fsync("d")
    disk.rename("d/n", "e/n")
    disk.fsync("e")


SEQUENCES = {
    each.__name__: each for each in tuple(globals().values()) if getattr(each, "__module__", "") == __name__
}
