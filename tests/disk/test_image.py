"""Images: content, digests, and the directory that they turn into."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from chaoskit.disk.filedata import EMPTY, FileData, file_data
from chaoskit.disk.intmap import IntMap
from chaoskit.disk.kill_states import images
from chaoskit.disk.staging import StagingDirectory, materialise
from tests.disk.listings import listing, read_listing, same_as
from tests.disk.positions import image_at
from tests.disk.programs import PROGRAMS, run
from tests.disk.traces import Disk

KEYS = st.integers(0, 40_000)


@given(st.lists(st.tuples(KEYS, st.none() | st.integers())), st.lists(st.tuples(KEYS, st.integers())))
def test_a_persistent_map_is_a_dictionary_and_its_difference_is_exact(before, after):
    old: IntMap[int] = IntMap()
    for key, value in before:
        old = old.put(key, value)
    new, expected = old, dict(old.items())
    for key, value in after:
        new, expected[key] = new.put(key, value), value
    assert dict(new.items()) == expected
    assert all(new.get(key) == value for key, value in expected.items())
    changed = {key for key, here, there in old.diff(new) if here != there}
    assert changed == {key for key in expected if old.get(key) != expected[key]}


def edited(content: bytearray, data: FileData, edit: tuple[str, int, int]) -> FileData:
    kind, offset, size = edit
    if kind == "write":
        content.extend(bytes(max(0, offset + size - len(content))))
        content[offset : offset + size] = b"w" * size
        return data.write(offset, b"w" * size)
    if kind == "truncate":
        del content[size:]
        content.extend(bytes(size - len(content)))
        return data.truncate(size)
    end = min(len(content), offset + size)
    content[offset:end] = bytes(max(0, end - offset))
    return data.punch(offset, size)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("write", "truncate", "punch")), st.integers(0, 9000), st.integers(1, 9000)
        ),
        max_size=8,
    )
)
def test_file_data_are_bytes_and_equal_bytes_have_equal_digests(edits):
    content, data = bytearray(), EMPTY
    for edit in edits:
        data = edited(content, data, edit)
        assert data.read() == bytes(content)
        assert data.digest == file_data(bytes(content)).digest


def test_the_digest_does_not_depend_on_how_the_content_came_about():
    straight, crooked = Disk(), Disk()
    straight.create("a")
    straight.write("a", b"x" * 5000)
    crooked.create("tmp")
    crooked.write("tmp", b"y" * 9000)
    crooked.truncate("tmp", 5000)
    crooked.write("tmp", b"x" * 5000)
    crooked.rename("tmp", "a")
    one, other = (image_at(d.trace(), d.at) for d in (straight, crooked))
    assert one.digest == other.digest
    assert listing(one) == listing(other) == {"a": b"x" * 5000}


def test_the_digest_tells_one_file_with_two_names_from_two_equal_files():
    linked, copied = Disk(a=b"same"), Disk(a=b"same")
    linked.link("a", "b")
    copied.create("b")
    copied.write("b", b"same")
    one, other = (image_at(d.trace(), d.at) for d in (linked, copied))
    assert listing(one) == listing(other)
    assert one.digest != other.digest


def test_a_change_deep_below_changes_the_digest_of_the_whole():
    disk = Disk()
    disk.mkdir("d")
    disk.mkdir("d/e")
    disk.create("d/e/f")
    before = image_at(disk.trace(), disk.at).digest
    disk.write("d/e/f", b"x")
    assert image_at(disk.trace(), disk.at).digest != before
    disk.truncate("d/e/f")
    assert image_at(disk.trace(), disk.at).digest == before


@settings(max_examples=80, deadline=None)
@given(PROGRAMS)
def test_a_directory_follows_the_images_in_any_order(tmp_path_factory, steps):
    trace = run(steps).trace()
    every = list(images(trace))
    order = [*every, *reversed(every), *every[::2]]
    directory = tmp_path_factory.mktemp("state")
    previous = None
    for image in order:
        materialise(image, directory, previous)
        assert same_as(directory, image)
        previous = image


def test_hard_links_and_symbolic_links_are_real(tmp_path):
    disk = Disk(a=b"one")
    disk.link("a", "b")
    disk.symlink("s", "a")
    disk.write("b", b"two")
    trace = disk.trace()
    materialise(image_at(trace, 0), tmp_path, None)
    materialise(image_at(trace, disk.at), tmp_path, image_at(trace, 0))
    assert os.path.samefile(tmp_path / "a", tmp_path / "b")
    assert os.readlink(tmp_path / "s") == "a"
    assert (tmp_path / "a").read_bytes() == b"two"


def test_links_between_neighbouring_images_are_made_and_undone_in_place(tmp_path):
    disk = Disk(a=b"one")
    disk.link("a", "b")
    disk.write("a", b"two")
    disk.unlink("a")
    every = list(images(disk.trace()))
    materialise(every[0], tmp_path, None)
    for old, new in [*pairwise(every), (every[-1], every[1])]:
        materialise(new, tmp_path, old)
        assert same_as(tmp_path, new)
    assert os.path.samefile(tmp_path / "a", tmp_path / "b")


def test_only_differing_files_are_touched(tmp_path):
    disk = Disk(big=b"x" * 100_000, small=b"y")
    disk.write("small", b"z")
    before, after = images(disk.trace())
    materialise(before, tmp_path, None)
    os.utime(tmp_path / "big", ns=(7, 7))
    materialise(after, tmp_path, before)
    assert os.stat(tmp_path / "big").st_mtime_ns == 7
    assert (tmp_path / "small").read_bytes() == b"z"


def test_same_as_finds_a_difference_unless_it_is_ignored(tmp_path):
    image = next(images(Disk(a=b"1").trace()))
    materialise(image, tmp_path, None)
    (tmp_path / "a-shm").write_bytes(b"?")
    assert not same_as(tmp_path, image)
    assert same_as(tmp_path, image, ignore=lambda path: path.endswith("-shm"))


@pytest.mark.parametrize("damage", ["overwrite", "remove", "add", "replace", "none", "directory"])
def test_a_stage_shows_the_image_whatever_recovery_did_to_it(tmp_path, damage):
    disk = Disk(a=b"1" * 5000, b=b"2")
    disk.mkdir("d")
    disk.create("d/f")
    disk.write("a", b"3", 4999)
    stage = StagingDirectory(tmp_path)
    for image in [*images(disk.trace())] * 2:
        stage.show(image)
        assert read_listing(tmp_path) == listing(image)
        if damage == "overwrite":
            with open(tmp_path / "a", "r+b") as file:
                file.write(b"#")
        elif damage == "remove":
            (tmp_path / "b").unlink()
        elif damage == "add":
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "x").write_bytes(b"x")
        elif damage == "replace":
            (tmp_path / "other").write_bytes(b"2")
            (tmp_path / "other").rename(tmp_path / "b")
        elif damage == "directory" and (tmp_path / "d").exists():
            (tmp_path / "d").rename(tmp_path / "elsewhere")
