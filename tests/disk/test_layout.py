"""interposer.c and layout.py describe the same memory: a compiler compares them.

The C source is included whole, followed by one _Static_assert for each offset, size and number in
layout.py. Nothing is linked or run.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest

from chaoskit.disk import interposer, trace
from chaoskit.disk.ops import Kind
from chaoskit.inside import layout
from tests.disk.watching import COMPILER, needs_compiler

ENUMERATORS = re.compile(r"\b(?:MODE|OPTION|FIRED|ACTION|KIND|FLAG)_[A-Z0-9_]+\b")
NUMBERS = {name: value for name, value in vars(layout).items() if ENUMERATORS.fullmatch(name)}
STRUCTS = {"control": layout.CONTROL_FIELDS, "slot": layout.SLOT_FIELDS, "record": layout.RECORD_FIELDS}


def expected() -> Iterator[tuple[str, int]]:
    """C expressions, and what they must be."""
    yield from NUMBERS.items()
    for name in ("MAGIC", "VERSION", "TABLE_OFFSET", "TABLE_SLOTS", "TRACE_OFFSET"):
        yield name, getattr(layout, name)
    for name, fields in STRUCTS.items():
        for member, (offset, form) in layout.offsets(fields).items():
            yield f"offsetof(struct {name}, {member})", offset
            yield f"sizeof(((struct {name} *)0)->{member})", form.size
    # The members follow each other without a gap, so the end shows that none is missing.
    yield "offsetof(struct control, reserved)", size(layout.CONTROL_FIELDS)
    yield "sizeof(struct slot)", size(layout.SLOT_FIELDS)
    yield "sizeof(struct record)", size(layout.RECORD_FIELDS)
    yield "offsetof(struct control, root_path)", layout.ROOT_PATH_OFFSET
    yield "sizeof(((struct control *)0)->root_path)", layout.ROOT_PATH_SIZE


def size(fields: tuple[tuple[str, str], ...]) -> int:
    return struct.calcsize("<" + "".join(form for _, form in fields))


def differences(source: str) -> list[str]:
    """What the compiler finds different between a C source and layout.py."""
    assert COMPILER is not None
    checks = [f'_Static_assert({c} == {value}UL, "DIFFERS: {c}");' for c, value in expected()]
    done = subprocess.run(
        [COMPILER, "-fsyntax-only", "-x", "c", "-"],
        input="\n".join([source, *checks]),
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"DIFFERS: ([^\"]+)\"", done.stderr)
    assert bool(found) == bool(done.returncode), done.stderr
    return list(dict.fromkeys(found))


@needs_compiler
def test_the_compiler_finds_no_difference() -> None:
    assert differences(interposer.SOURCE.read_text()) == []


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("KIND_SYMLINK,\n    KIND_LINK,", "KIND_LINK,\n    KIND_SYMLINK,", "KIND_SYMLINK"),
        ("FLAG_TORN = 4,", "FLAG_TORN = 1024,", "FLAG_TORN"),
        ("    ACTION_FAIL,\n", "    ACTION_PAUSE,\n    ACTION_FAIL,\n", "ACTION_FAIL"),
        ("uint32_t reserved[19];", "uint32_t more, reserved[18];", "offsetof(struct control, reserved)"),
        ("    uint32_t dead;", "    uint32_t more, dead;", "offsetof(struct control, dead)"),
        ("uint16_t kind, flags;", "uint16_t flags, kind;", "offsetof(struct record, kind)"),
        ("    uint32_t state;\n", "    uint32_t state, more[2];\n", "sizeof(struct slot)"),
        ("#define TABLE_SLOTS 16384u", "#define TABLE_SLOTS 8192u", "TABLE_SLOTS"),
        ("#define VERSION 6", "#define VERSION 7", "VERSION"),
    ],
)
def test_a_change_of_the_source_alone_is_found(old: str, new: str, found: str) -> None:
    source = interposer.SOURCE.read_text()
    assert old in source
    # The source's own assertions would stop the compiler first.
    changed = re.sub(r"^_Static_assert.*\n", "", source.replace(old, new, 1), flags=re.MULTILINE)
    assert found in differences(changed)


@needs_compiler
@pytest.mark.parametrize("name", ["KIND_RENAME", "FLAG_NAMELESS", "MODE_RECORD", "ACTION_LOSE"])
def test_a_change_of_the_layout_alone_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(NUMBERS, name, NUMBERS[name] + 1000)
    assert differences(interposer.SOURCE.read_text()) == [name]


def test_every_enumerator_of_the_source_has_its_number_in_the_layout() -> None:
    bodies = re.findall(r"^enum\b[^{;]*\{([^}]*)\}", interposer.SOURCE.read_text(), flags=re.MULTILINE)
    assert set(ENUMERATORS.findall(" ".join(bodies))) == set(NUMBERS)


def test_every_word_has_its_number() -> None:
    assert tuple(trace.KIND_NUMBERS) == get_args(Kind)
    assert tuple(trace.NOTE_NUMBERS) == get_args(trace.Note)
    assert tuple(interposer._MODES) == get_args(interposer.Mode)
    assert tuple(interposer._ACTIONS) == get_args(interposer.ActionKind)
    assert tuple(interposer._FIRED.values()) == get_args(interposer.Fired)
    kinds = {*trace.KIND_NUMBERS.values(), *trace.NOTE_NUMBERS.values()}
    assert kinds == {value for name, value in NUMBERS.items() if name.startswith("KIND_")}
    for kind, number in trace.KIND_NUMBERS.items():
        assert NUMBERS[f"KIND_{kind.upper()}"] == number
    for action, number in interposer._ACTIONS.items():
        assert NUMBERS[f"ACTION_{action.upper()}"] == number


def test_the_layout_imports_nothing_but_struct() -> None:
    """It is loaded into other people's processes."""
    script = (
        "import sys; import struct, _struct; before = set(sys.modules);"
        "exec(compile(open(sys.argv[1]).read(), 'layout', 'exec'), {'__name__': 'layout'});"
        "print(sorted(set(sys.modules) - before - {'__future__'}))"
    )
    command = [sys.executable, "-S", "-c", script, layout.__file__]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
