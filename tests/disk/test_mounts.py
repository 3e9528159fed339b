"""Which file system is under a directory: mounts, bind mounts, overlays."""

from __future__ import annotations

import pytest

from chaoskit.disk.mounts import file_system_of, mounted

HOST = """\
27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 27 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw
41 27 259:2 / /data rw,relatime - xfs /dev/vdb rw,attr2
42 41 259:1 /srv /data/my\\040files rw,relatime - ext4 /dev/vda rw
43 27 259:3 / /fast rw - ext4 /dev/vdc rw,data=writeback
44 27 259:4 / /old rw - zfs pool rw
"""
CONTAINER = """\
500 480 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/engine/1/diff,workdir=/w
510 500 259:1 /var/lib/engine/hosts /etc/hosts rw - xfs /dev/sda1 rw
"""


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Paths in these listings need not exist here."""
    monkeypatch.setattr("pathlib.Path.resolve", lambda path, strict=False: path)

    def found(path, listing):
        return file_system_of(tmp_path.__class__(path), mounted(listing))

    return found


@pytest.mark.parametrize(
    ("path", "kind", "profile"),
    [
        ("/home/me", "ext4", "ext4"),
        ("/data/db", "xfs", "xfs"),
        ("/data/my files/db", "ext4", "ext4"),  # a bind mount, with a space in its name
        ("/database", "ext4", "ext4"),  # not below /data
        ("/old/db", "zfs", "posix"),
    ],
)
def test_the_deepest_mount_decides(places, path, kind, profile):
    found = places(path, HOST)
    assert (found.kind, found.profile) == (kind, profile)


def test_a_later_mount_covers_an_earlier_one(places):
    covered = HOST + "50 27 259:9 / /data rw - btrfs /dev/vdz rw\n"
    assert places("/data/db", covered).kind == "btrfs"


def test_what_differs_from_what_was_measured_is_named(places):
    assert "measured without data=writeback" in places("/fast/db", HOST).words()
    assert "was not measured" in places("/old/db", HOST).words()
    assert "leaves nothing" in places("/tmp/db", HOST).words()


def test_in_a_container_the_files_of_the_engine_give_a_hint(places):
    found = places("/app", CONTAINER)
    assert (found.kind, found.profile, found.guessed) == ("xfs", "xfs", True)
    assert found.words() == "overlay over probably xfs on /dev/sda1, mounted at /: profile xfs"
    alone = places("/app", CONTAINER.splitlines()[0])
    assert alone.profile == "posix" and "unknown file system" in alone.words()


def test_an_overlay_whose_upper_directory_is_here_is_as_that_directory(places, tmp_path):
    overlay = f"60 27 0:60 / /merged rw - overlay overlay rw,upperdir={tmp_path}\n"
    assert places("/merged/x", HOST + overlay).words().startswith("overlay over ")
    assert places("/merged/x", HOST + overlay).profile in ("ext4", "posix")


def test_the_file_system_under_this_directory_is_found(tmp_path):
    assert file_system_of(tmp_path).mount.place


def test_a_directory_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        file_system_of(tmp_path / "nowhere")
