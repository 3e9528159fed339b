"""Real file systems on a disk whose every block write and flush is logged (logdisk.c).

`LiveDisk` is mounted while a program runs on it. `CrashedDisk` holds what a power loss left, is mounted by
the kernel, which replays its journal, and is read. Needs root, /dev/fuse, loop devices and the mkfs programs.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tests.disk.listings import Content, read_listing

LIBC = ctypes.CDLL(None, use_errno=True)
BLOCK = 4096
SECTOR = 512
SOURCE = Path(__file__).with_name("logdisk.c")
_SET_FD, _CLEAR_FD, _GET_FREE = 0x4C00, 0x4C01, 0x4C82  # ioctls of loop devices
_START_COMMIT, _WAIT_FOR_COMMIT = 0x80089418, 0x40089416  # ioctls of btrfs: START_SYNC, WAIT_SYNC
_PUNCH_AND_KEEP_SIZE = 3
_TRIES = 500

Blocks = dict[int, bytes]  # what is not zeros


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size: int  # of the disk
    make: tuple[str, ...]
    live: str = ""  # mount options that keep timers out
    environment: Mapping[str, str] = {}


FILE_SYSTEMS = {
    "ext4": FileSystem(
        name="ext4",
        size=12 << 20,
        make=(
            *("mkfs.ext4", "-q", "-b", "4096", "-J", "size=4", "-O", "^resize_inode"),
            *("-E", "lazy_itable_init=0,lazy_journal_init=0"),
        ),
        live="commit=1000",
    ),
    "xfs": FileSystem(
        name="xfs",
        size=64 << 20,
        make=("mkfs.xfs", "-q", "-f", "-b", "size=4096", "-s", "size=512", "-l", "size=8m"),
        # mkfs refuses disks below 300 MB, except for its own tests.
        environment={"TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"},
    ),
    "btrfs": FileSystem(
        name="btrfs",
        size=128 << 20,
        make=("mkfs.btrfs", "-q", "-f", "-m", "single"),
        live="commit=10",  # not longer: now and then a commit that was asked for waits for the timer
    ),
}


def missing(system: FileSystem) -> str | None:
    """None, or why this file system cannot be tried here."""
    if os.geteuid() != 0:
        return "needs root, to mount file systems"
    for place in ("/dev/fuse", "/dev/loop-control"):
        if not os.access(place, os.R_OK | os.W_OK):
            return f"needs {place}"
    if not shutil.which(system.make[0]):
        return f"needs {system.make[0]}"
    if system.name not in Path("/proc/filesystems").read_text():
        return f"this kernel has no {system.name}"
    return None if shutil.which("gcc") else "needs gcc"


def check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


@contextmanager
def attached(backing: Path) -> Iterator[str]:
    """A loop device over the file; nobody holds it open, so that unmounting drops its cache."""
    for _ in range(_TRIES):
        with open("/dev/loop-control", "rb") as control:
            number = fcntl.ioctl(control, _GET_FREE)
        device = f"/dev/loop{number}"
        handle = os.open(device, os.O_RDWR)
        try:
            with open(backing, "r+b") as file:
                fcntl.ioctl(handle, _SET_FD, file.fileno())
            break
        except OSError:  # another process was faster
            time.sleep(0.01)
        finally:
            os.close(handle)
    else:
        raise OSError("no loop device is free")
    try:
        yield device
    finally:
        handle = os.open(device, os.O_RDWR)
        fcntl.ioctl(handle, _CLEAR_FD)
        os.close(handle)


@contextmanager
def mounted(device: str, where: Path, system: FileSystem, options: str = "") -> Iterator[Path]:
    arguments = (device, str(where), system.name)
    check(LIBC.mount(*(text.encode() for text in arguments), 0, options.encode()), "mount")
    try:
        yield where
    finally:
        unmount(where)


def unmount(where: Path) -> None:
    for _ in range(_TRIES):
        if LIBC.umount2(os.fsencode(where), 0) == 0:
            return
        time.sleep(0.01)
    raise OSError(ctypes.get_errno(), f"cannot unmount {where}")


class Workshop:
    """A directory with a blank file system of one kind, holding `watched/*` and an unrelated file."""

    def __init__(self, home: Path, system: FileSystem, initial: Mapping[str, bytes]) -> None:
        self.home, self.system = home, system
        for name in ("live", "after", "fuse"):
            (home / name).mkdir(exist_ok=True)
        self.program = home / "logdisk"
        if not self.program.exists():
            subprocess.run(["gcc", "-O2", "-o", self.program, SOURCE], check=True)
        self.blank = self._make_blank(initial)

    def _make_blank(self, initial: Mapping[str, bytes]) -> Blocks:
        image = self.home / "blank"
        with open(image, "wb") as file:
            file.truncate(self.system.size)
        environment = {**os.environ, **self.system.environment}
        subprocess.run([*self.system.make, image], check=True, capture_output=True, env=environment)
        with attached(image) as device, mounted(device, self.home / "live", self.system) as root:
            (root / "watched").mkdir()
            (root / "stranger").write_bytes(b"")
            for name, data in initial.items():
                (root / "watched" / name).write_bytes(data)
            sync_file_system(root)
        return blocks_of(image)


def sync_file_system(root: Path) -> None:
    handle = os.open(root, os.O_RDONLY)
    check(LIBC.syncfs(handle), "syncfs")
    os.close(handle)


def blocks_of(image: Path) -> Blocks:
    found, nothing = {}, bytes(BLOCK)
    with open(image, "rb") as file:
        for number in range(image.stat().st_size // BLOCK):
            block = file.read(BLOCK)
            if block != nothing:
                found[number] = block
    return found


def put(image: Path, size: int, blocks: Blocks) -> None:
    """The file's content becomes these blocks; the file itself stays, it may be attached."""
    handle = os.open(image, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(handle, size)
    whole = (ctypes.c_longlong(0), ctypes.c_longlong(size))
    check(LIBC.fallocate(handle, _PUNCH_AND_KEEP_SIZE, *whole), "fallocate")
    for number, block in blocks.items():
        os.pwrite(handle, block, number * BLOCK)
    os.close(handle)


class LiveDisk:
    """A mounted file system whose disk is logged."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self.root = shop.home / "live"
        self._log = shop.home / "log"
        self._mode = 0o600

    def __enter__(self) -> LiveDisk:
        shop = self._shop
        put(shop.home / "disk", shop.system.size, shop.blank)
        command = [shop.program, shop.home / "disk", self._log, shop.home / "fuse"]
        # Not in our process group: a signal for us must not end the disk before it is unmounted.
        self._daemon = subprocess.Popen(command, start_new_session=True)
        for _ in range(_TRIES):
            with suppress(OSError):
                self._control = os.open(shop.home / "fuse" / "control", os.O_WRONLY)
                break
            time.sleep(0.005)
        self._attached = attached(shop.home / "fuse" / "disk")
        self._mounted = mounted(self._attached.__enter__(), self.root, shop.system, shop.system.live)
        self._mounted.__enter__()
        self._stranger = os.open(self.root / "stranger", os.O_RDWR)
        self.commit()  # the first one after mounting also writes what mounting changed: not typical
        self.commit()
        return self

    def mark(self, text: str) -> None:
        os.pwrite(self._control, text.encode(), 0)

    def commit(self) -> None:
        """What the commit timer does: commits metadata, writes back no data."""
        self._mode ^= 0o077
        os.fchmod(self._stranger, self._mode)
        if self._shop.system.name == "btrfs":  # where an fsync commits nothing but its file
            number = fcntl.ioctl(self._stranger, _START_COMMIT, bytes(8))
            fcntl.ioctl(self._stranger, _WAIT_FOR_COMMIT, number)
        else:
            os.fsync(self._stranger)

    def sync(self) -> None:
        sync_file_system(self.root)

    def variables(self) -> dict[str, str]:
        """With which a program can mark its acknowledgements in the log."""
        return {"DISK_CONTROL": str(self._shop.home / "fuse" / "control")}

    def __exit__(self, *exc_info: object) -> None:
        self.mark("end")
        self.mark("delay 0")
        os.close(self._stranger)
        os.close(self._control)
        self._mounted.__exit__(None, None, None)
        self._attached.__exit__(None, None, None)
        unmount(self._shop.home / "fuse")
        self._daemon.wait(10)

    def log(self) -> bytes:
        return self._log.read_bytes()


class CrashedDisk:
    """One loop device, shown one crashed disk after another."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._image = shop.home / "crashed"
        put(self._image, shop.system.size, {})

    def __enter__(self) -> CrashedDisk:
        self._attached = attached(self._image)
        self._device = self._attached.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._attached.__exit__(None, None, None)

    def survivors(self, blocks: Blocks) -> dict[str, Content]:
        """What the kernel finds after it has replayed the journal."""
        with self.mounted(blocks) as root:
            return read_listing(root / "watched")

    @contextmanager
    def mounted(self, blocks: Blocks) -> Iterator[Path]:
        put(self._image, self._shop.system.size, blocks)
        with mounted(self._device, self._shop.home / "after", self._shop.system) as root:
            yield root
