"""Which file system is under a directory, and which power-loss profile fits it.

The kernel lists all mounts in /proc/self/mountinfo; a directory belongs to the mount with the longest path
above it. An overlay keeps new files in its upper directory, so that one's file system counts. Inside a
container the upper directory cannot be seen. Container engines mount files such as /etc/hosts from beside it,
so their file system is the best guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from chaoskit.disk.ops import Profile

MOUNTS = Path("/proc/self/mountinfo")
PROFILES: dict[str, Profile] = {"ext4": "ext4", "xfs": "xfs", "btrfs": "btrfs"}
_BESIDE_THE_OVERLAY = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_IN_MEMORY = ("tmpfs", "ramfs")
# Options with which ext4 does not behave as it was measured.
_UNUSUAL = ("data=journal", "data=writeback", "nodelalloc", "dioread_lock", "noauto_da_alloc", "nobarrier")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    kind: str  # the file system
    source: str  # the device
    options: tuple[str, ...]

    def option(self, name: str) -> str | None:
        return next((text.partition("=")[2] for text in self.options if text.startswith(f"{name}=")), None)


class FileSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What lies under a directory."""

    mount: Mount
    below: Mount | None = None  # the file system that holds the files of an overlay
    guessed: bool = False  # ... as far as it can be seen from here

    @property
    def kind(self) -> str:
        return (self.below or self.mount).kind

    @property
    def profile(self) -> Profile:
        """The strict one if the file system was not measured."""
        return PROFILES.get(self.kind, "posix")

    def words(self) -> str:
        shown = self.below or self.mount
        text = f"{shown.kind} on {shown.source}"
        if self.mount.kind == "overlay":
            seen = "probably " if self.guessed else ""
            text = f"overlay over {seen}{text}" if self.below else "overlay over an unknown file system"
        text += f", mounted at {self.mount.place}"
        return f"{text}: profile {self.profile}{self._remark()}"

    def _remark(self) -> str:
        if self.kind in _IN_MEMORY:
            return ", although a power loss leaves nothing here"
        unusual = [option for option in (self.below or self.mount).options if option in _UNUSUAL]
        if unusual:
            return f", which was measured without {', '.join(unusual)}"
        return "" if self.kind in PROFILES else ", because this file system was not measured"


def file_system_of(directory: Path, mounts: Iterable[Mount] | None = None) -> FileSystem:
    """Raises OSError if there is no such directory."""
    found = list(mounted() if mounts is None else mounts)
    mount = _above(directory.resolve(strict=True), found)
    if mount.kind != "overlay":
        return FileSystem(mount=mount)
    upper = mount.option("upperdir")
    if upper and Path(upper).exists():
        return FileSystem(mount=mount, below=_above(Path(upper).resolve(), found))
    beside = [each for each in found if each.place in _BESIDE_THE_OVERLAY and each.kind in PROFILES]
    return FileSystem(mount=mount, below=beside[0] if beside else None, guessed=True)


def mounted(text: str | None = None) -> list[Mount]:
    lines = (MOUNTS.read_text() if text is None else text).splitlines()
    return [_mount(line) for line in lines if " - " in line]


def _mount(line: str) -> Mount:
    """proc(5): fields, any number of optional ones, a hyphen, then three more."""
    left, _, right = line.partition(" - ")
    kind, source, more = right.split(" ", 2)
    fields = left.split(" ")
    options = tuple(dict.fromkeys((*fields[5].split(","), *more.split(","))))
    return Mount(place=_plain(fields[4]), kind=kind, source=_plain(source), options=options)


def _plain(text: str) -> str:
    """Spaces and the like are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _above(path: Path, mounts: list[Mount]) -> Mount:
    """The last one counts: a later mount covers an earlier one at the same place."""
    above = [mount for mount in mounts if path.is_relative_to(mount.place)]
    return max(reversed(above), key=lambda mount: len(mount.place))
