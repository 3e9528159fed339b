"""The Python side of the interposer inside the target: activates it and reads its position.

Standard library only, and nothing from the engine: this is imported into the target's process. It
works in a process that was started with the library preloaded, also after a fork from the zygote.
"""

from __future__ import annotations

import ctypes
import os

from chaoskit.inside.layout import CONTROL

_POSITION_OFFSET = CONTROL["position"][0]
_MAPPINGS_OFFSET = CONTROL["shared_mappings"][0]

_page: list[tuple[ctypes.c_uint64, ctypes.c_uint32]] = []  # empty until activated, then the two counters


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    if not hasattr(library, "chaoskit_interposer_start"):
        raise RuntimeError(
            "the interposer is not loaded in this process: LD_PRELOAD must name it when the "
            "interpreter starts (chaoskit.disk.interposer.preload returns such an environment)"
        )
    library.chaoskit_interposer_start.restype = ctypes.c_long
    library.chaoskit_interposer_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.chaoskit_interposer_page.restype = ctypes.c_void_p
    return library


def start(watched_dir: str | os.PathLike[str], control: str | os.PathLike[str]) -> None:
    """From here on, operations below `watched_dir` are recorded. Programs that the target starts open the
    control file by its path.

    The process becomes the leader of its own process group, which a kill takes down as a whole.
    """
    library = _library()
    error: int = -library.chaoskit_interposer_start(os.fsencode(watched_dir), os.fsencode(control))
    if error:
        raise OSError(error, f"interposer: {os.strerror(error)}: watched {watched_dir}", os.fspath(control))
    _bind(library)


def _bind(library: ctypes.CDLL) -> None:
    page = library.chaoskit_interposer_page()
    _page[:] = []
    if page:
        position = ctypes.c_uint64.from_address(page + _POSITION_OFFSET)
        _page[:] = [(position, ctypes.c_uint32.from_address(page + _MAPPINGS_OFFSET))]


def stop() -> None:
    """Stops recording in all processes of this activation. `position` keeps its value."""
    _library().chaoskit_interposer_stop()


def set_clock(seconds: float) -> None:
    """From here on the wall clock starts at this time and advances each time it is read; 0: the real one."""
    library = _library()
    library.chaoskit_interposer_clock.argtypes = [ctypes.c_int64]
    library.chaoskit_interposer_clock(int(seconds * 1_000_000_000))


def position() -> int:
    """The number of operations so far, with stores through mappings: two reads of shared memory."""
    if not _page:  # may have been activated by environment variables alone
        _bind(_library())
    if not _page:
        return 0
    position, mappings = _page[0]
    if mappings.value:
        _library().chaoskit_interposer_look()
    return position.value
