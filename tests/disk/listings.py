"""What a directory holds, as a dictionary by path: of an image, and of a real directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from chaoskit.disk.image import FileNode, Image, Object, SymlinkNode

Content = bytes | str | None  # of a file; of a symbolic link, its target; of a directory


def listing(image: Image) -> dict[str, Content]:
    return {path: _content(node) for path, _, node in sorted(image.walk(), key=lambda found: found[0])}


def _content(node: Object) -> Content:
    if isinstance(node, FileNode):
        return node.data.read()
    return node.target if isinstance(node, SymlinkNode) else None


def read_listing(directory: str | os.PathLike[str]) -> dict[str, Content]:
    found: dict[str, Content] = {}
    for path in sorted(Path(directory).rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found


def same_as(
    directory: str | os.PathLike[str], image: Image, ignore: Callable[[str], bool] = lambda _path: False
) -> bool:
    expected = {path: content for path, content in listing(image).items() if not ignore(path)}
    return expected == {p: c for p, c in read_listing(directory).items() if not ignore(p)}
