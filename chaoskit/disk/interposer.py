"""The harness' side of the interposer: builds it, prepares its control file, reads its results.

The control file is one shared mapping: a page of settings and counters, a table of inodes, the
trace. It is a sparse file on tmpfs and can be armed again for the next run, which is cheaper than
creating a new one. `chaoskit.inside.layout` defines its layout.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from chaoskit.cache import cache_directory
from chaoskit.disk import compiling
from chaoskit.disk.ops import ALL_KINDS, Kind
from chaoskit.disk.trace import KIND_NUMBERS, RawTrace
from chaoskit.inside import layout

SOURCE: Final = Path(__file__).with_name(compiling.SOURCE_NAME)
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # the file's name is random, its mode 0600
FOREVER: Final = 2**64 - 1

Mode = Literal["off", "count", "record"]
ActionKind = Literal["none", "kill_before", "kill_after", "kill_half", "fail", "short", "lose", "fill"]
Fired = Literal["no", "yes", "not applicable"]
_MODES: Final[dict[Mode, int]] = {
    "off": layout.MODE_OFF,
    "count": layout.MODE_COUNT,
    "record": layout.MODE_RECORD,
}
_ACTIONS: Final[dict[ActionKind, int]] = {
    "none": layout.ACTION_NONE,
    "kill_before": layout.ACTION_KILL_BEFORE,
    "kill_after": layout.ACTION_KILL_AFTER,
    "kill_half": layout.ACTION_KILL_HALF,
    "fail": layout.ACTION_FAIL,
    "short": layout.ACTION_SHORT,
    "lose": layout.ACTION_LOSE,
    "fill": layout.ACTION_FILL,
}
_FIRED: Final[dict[int, Fired]] = {
    layout.FIRED_NOT: "no",
    layout.FIRED_YES: "yes",
    layout.FIRED_NOT_APPLICABLE: "not applicable",
}

# Operations that fail on a full disk; unlink, truncate and rename still work.
NEEDS_SPACE: Final[frozenset[Kind]] = frozenset({"create", "mkdir", "symlink", "link", "write", "allocate"})

_KEPT_WHEN_ARMED: Final = {"magic", "version", "trace_size", "generation"}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. It strikes the first `count` operations of `kinds` from index `at` on.

    The operation at index `at` advances the position from `at` to `at + 1`.
    """

    kind: ActionKind
    at: int = 0
    count: int = 1
    kinds: frozenset[Kind] = ALL_KINDS
    errno: int = errno.EIO
    then_kill: ActionKind = "none"  # a kill later in the same life, which survives the fault itself
    then_at: int = 0


def then_kill(first: Action, second: Action) -> Action:
    """`first`, which the process survives, and a kill at the operation that gets the index of `second`."""
    assert second.kind.startswith("kill"), f"{second.kind} does not end a life"
    return msgspec.structs.replace(first, then_kill=second.kind, then_at=second.at)


def kill(at: int, when: Literal["before", "after", "half"] = "before") -> Action:
    kinds: dict[str, ActionKind] = {"before": "kill_before", "after": "kill_after", "half": "kill_half"}
    return Action(kind=kinds[when], at=at)


def fail(at: int, error: int, *, kinds: Iterable[Kind] = ALL_KINDS, count: int = 1) -> Action:
    return Action(kind="fail", at=at, errno=error, kinds=frozenset(kinds), count=count)


def short_write(at: int, *, count: int = 1) -> Action:
    return Action(kind="short", at=at, count=count)


def fill(at: int, *, kinds: Iterable[Kind], count: int = 1) -> Action:
    """Half of the write at `at` fits on the disk; the next `count` operations of `kinds` fail with ENOSPC."""
    count = count if count == FOREVER else count + 1
    return Action(kind="fill", at=at, errno=errno.ENOSPC, kinds=frozenset(kinds), count=count)


def lose_on_fsync(at: int, *, count: int = 1) -> Action:
    return Action(kind="lose", at=at, count=count)


class Control:
    """The harness' view of the control file."""

    def __init__(self, path: str | os.PathLike[str], *, trace_size: int = 1 << 30) -> None:
        """Creates the file. `trace_size` is address space; memory is used as the trace grows."""
        self.path = Path(path)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, layout.TRACE_OFFSET + trace_size)
            self._memory = mmap.mmap(descriptor, layout.TRACE_OFFSET + trace_size)
        finally:
            os.close(descriptor)
        self._put("magic", layout.MAGIC)
        self._put("version", layout.VERSION)
        self._put("trace_size", trace_size)
        self._put("generation", 1)

    def arm(
        self,
        watched: str | os.PathLike[str],
        mode: Mode = "record",
        action: Action | None = None,
        *,
        seccomp: bool = True,
        check: bool = False,
    ) -> None:
        """Prepares for one activation: clears counters and trace. No target may be attached.

        `check`: the trace also keeps what each operation replaces, so that unseen changes can be found.
        """
        root = os.path.realpath(watched)
        if len(os.fsencode(root)) >= layout.ROOT_PATH_SIZE:
            raise ValueError(f"the path of the watched directory is too long: {root}")
        if action is not None and action.kind == "lose" and mode != "record":
            raise ValueError("losing data on a failed fsync needs mode 'record'")
        for name in layout.CONTROL.keys() - _KEPT_WHEN_ARMED:
            self._put(name, 0)
        self._put("generation", (self._get("generation") + 1) % 2**32)
        encoded = os.fsencode(root) + b"\0"
        self._memory[layout.ROOT_PATH_OFFSET : layout.ROOT_PATH_OFFSET + len(encoded)] = encoded
        checking = layout.OPTION_CHECK if check else 0
        self._put("options", (layout.OPTION_SECCOMP if seccomp else 0) | checking)
        self._arm_action(action or Action(kind="none"))
        self._put("mode", _MODES[mode])

    def _arm_action(self, action: Action) -> None:
        self._put("action", _ACTIONS[action.kind])
        self._put("action_at", action.at)
        self._put("action_count", action.count)
        self._put("action_kinds", sum(1 << KIND_NUMBERS[kind] for kind in action.kinds))
        self._put("action_errno", action.errno)
        self._put("then_kill", _ACTIONS[action.then_kill])
        self._put("then_at", action.then_at)

    def _get(self, name: str) -> int:
        offset, form = layout.CONTROL[name]
        value: int = form.unpack_from(self._memory, offset)[0]
        return value

    def _put(self, name: str, value: int) -> None:
        offset, form = layout.CONTROL[name]
        form.pack_into(self._memory, offset, value)

    @property
    def position(self) -> int:
        """The number of operations so far."""
        return self._get("position")

    @property
    def fired(self) -> Fired:
        """Whether the action fired: a fault that did not fire proves nothing."""
        return _FIRED[self._get("fired")]

    @property
    def then_fired(self) -> bool:
        """Whether the kill that was to follow the action fired."""
        return self._get("then_fired") == 1

    def raw_trace(self) -> RawTrace:
        """The input of `trace.decode`. Valid until the control is armed again."""
        end = layout.TRACE_OFFSET + self._get("trace_end")
        return RawTrace(
            data=self._memory[layout.TRACE_OFFSET : end],
            overflow=bool(self._get("overflow")),
            missed=self._get("nested") + self._get("stolen"),
            interrupted=self._get("lock") != 0 and not self._get("dead"),
        )

    def close(self, *, remove: bool = True) -> None:
        self._memory.close()
        if remove:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def new_control(*, trace_size: int = 1 << 30) -> Control:
    """In /dev/shm if it exists, so that the trace itself causes no disk writes."""
    place = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else tempfile.gettempdir()
    return Control(Path(place, f"chaoskit-{secrets.token_hex(8)}"), trace_size=trace_size)


def _compile_into(target: Path, compiler: str) -> None:
    """Creates the file atomically: two processes may build at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch, target.name)
        compiling.compile_library(compiler, str(SOURCE), str(made))
        made.replace(target)


def _cached_library() -> Path:
    """Named after a hash of its inputs, so that an edited source never uses an old build."""
    flags = " ".join(compiling.COMPILE_FLAGS)
    recipe = SOURCE.read_bytes() + flags.encode() + os.uname().machine.encode()
    return cache_directory() / f"interposer-{hashlib.sha256(recipe).hexdigest()[:16]}.so"


def _built_library() -> Path | None:
    """A library next to the source came with the wheel, so it has the same version."""
    beside = SOURCE.with_name(compiling.LIBRARY_NAME)
    return next((path for path in (beside, _cached_library()) if path.exists()), None)


def available() -> str | None:
    """None, or the reason why the interposer cannot be used on this machine."""
    if not sys.platform.startswith("linux"):
        return f"the interposer needs Linux, this is {sys.platform}"
    if os.uname().machine not in ("x86_64", "aarch64"):
        return f"the interposer supports x86_64 and aarch64, this is {os.uname().machine}"
    if _built_library() is None and compiling.find_compiler() is None:
        return "the interposer was not built with the package, and there is no C compiler (cc, gcc)"
    return None


def library() -> Path:
    """The library to preload; built on demand."""
    reason = available()
    if reason is not None:
        raise RuntimeError(reason)
    built = _built_library()
    if built is None:
        built = _cached_library()
        compiler = compiling.find_compiler()
        assert compiler is not None, "available() checks for a compiler"
        _compile_into(built, compiler)
    return built


def preload(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment that loads the library, which stays dormant until `inside.interposer.start`."""
    environment = dict(os.environ if base is None else base)
    others = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = f"{library()}:{others}" if others else str(library())
    environment.pop("CHAOSKIT_CONTROL", None)
    return environment


def environment(control: Control, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which a program is traced from its start (cold start)."""
    return {**preload(base), "CHAOSKIT_CONTROL": str(control.path)}
