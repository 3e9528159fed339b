"""Adapter: a description of a third-party adapter, obtained without importing it or its library.

The file is parsed, not executed: requirements come from its inline metadata (PEP 723), methods and plain
class attributes from its syntax tree. A certificate can therefore be planned, and an environment created,
before the library is installed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from chaoskit.inside.protocol import ADAPTER_METHODS
from chaoskit.model import Subject
from chaoskit.wrong_use import WrongUse

CALLERS = ("one", "threads", "tasks")  # where an application calls save from
CLOCKS = ("real", "seeded")
STYLES = ("snapshot", "history", "append", "workflow")
PROMISES = "promises"
_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


class BadAdapter(WrongUse):
    """The message gives what was expected of the adapter and what was found."""


class Promise(msgspec.Struct, frozen=True):
    """What the library documents, and where; `power`: the promise also covers power loss."""

    words: str
    where: str
    power: bool = False


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    """`reference` is always `file.py:Class`, with an absolute path."""

    name: str
    reference: str
    summary: str
    style: str
    methods: tuple[str, ...]
    requires: tuple[str, ...]
    unit: str = "one call"  # what one acknowledged call makes atomic
    promises: dict[str, Promise] | None = None  # None: the adapter declares none
    options: dict[str, Any] = {}  # other plain class attributes

    @property
    def subject(self) -> Subject:
        return "agent" if "start" in self.methods else "store"


def requirements(wanted: Sequence[str], instead: Sequence[str] = ()) -> tuple[str, ...]:
    """`wanted`, with the packages named in `instead` replaced."""
    try:
        mine = {Requirement(text).name.lower(): text for text in instead}
        kept = [text for text in wanted if Requirement(text).name.lower() not in mine]
    except InvalidRequirement as error:
        raise WrongUse(f"expected a requirement such as name==1.2.3: {error}") from None
    return (*kept, *mine.values())


def read(name: str, reference: str) -> Adapter:
    """Parse an adapter; BadAdapter explains in one line why it cannot be used."""
    path, class_name = _place(reference)
    try:
        source = path.read_text("utf-8")
        tree = ast.parse(source)
    except SyntaxError as error:
        raise BadAdapter(f"{path}, line {error.lineno}: {error.msg}") from None
    except OSError as error:
        raise BadAdapter(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError, MemoryError) as error:  # no text, or nested too deeply
        raise BadAdapter(f"{path} is not Python: {error or type(error).__name__}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if class_name not in classes:
        there = ", ".join(classes) or "none"
        raise BadAdapter(f"expected a class {class_name} in {path}, found: {there}")
    found = classes[class_name]
    lineage = _lineage(class_name, classes)
    methods = {m for node in lineage for m in _methods(node)}
    _check_promises_are_plain(tree, f"{path}:{class_name}")
    names = Counter(name for name, _ in _assignments(tree))
    constants = _constants(tree, {}, str(path)).items()
    shared = {name: value for name, value in constants if names[name] == 1}  # else it depends on the moment
    facts: dict[str, Any] = {}
    for node in reversed(lineage):
        facts |= _constants(node, shared, f"{path}:{class_name}")
    _check(class_name, path, methods, facts)
    declared = facts.pop(PROMISES, None)
    promises = (
        None
        if declared is None
        else {
            claim: Promise(words[0], words[1], power=words[2:] == ("power",))
            for claim, words in declared.items()
        }
    )
    return Adapter(
        name=name,
        reference=f"{path}:{class_name}",
        summary=(ast.get_docstring(found) or class_name).splitlines()[0].strip(),
        style=facts.pop("style", "workflow" if "start" in methods else _style(methods)),
        methods=tuple(sorted(methods)),
        requires=tuple(inline_metadata(source, path).get("dependencies", ())),
        unit=facts.pop("unit", "one call"),
        promises=promises,
        options=facts,
    )


def inline_metadata(source: str, path: Path) -> dict[str, Any]:
    """The `# /// script` block of PEP 723, if there is one."""
    match = _BLOCK.search(source)
    if not match:
        return {}
    lines = (line.removeprefix("#").removeprefix(" ") for line in match["content"].splitlines())
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise BadAdapter(f"the inline metadata of {path} is not valid TOML: {error}") from None


def _place(reference: str) -> tuple[Path, str]:
    place, colon, class_name = reference.rpartition(":")
    if not colon or not place or not class_name:
        raise BadAdapter(f"expected file.py:Class or module:Class, got {reference!r}")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise BadAdapter(f"no file {place!r}")
        return path, class_name
    try:
        spec = importlib.util.find_spec(place)
    except (ImportError, ValueError) as error:  # `__main__`, or a relative name
        raise BadAdapter(f"no module {place!r}: {error}") from None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise BadAdapter(f"no module {place!r} with a Python file")
    return Path(spec.origin), class_name


def _lineage(name: str, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """The class and its base classes from the same file, in Python's method resolution order."""
    stubs: dict[str, type] = {}

    def stub(name: str) -> type:
        if name not in stubs:
            bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
            stubs[name] = type(name, tuple(stub(base) for base in bases if base in classes), {})
        return stubs[name]

    try:
        return [classes[each.__name__] for each in stub(name).__mro__ if each is not object]
    except (TypeError, RecursionError):
        raise BadAdapter(
            f"the base classes of {name} cannot be ordered: Python would refuse it, too"
        ) from None


def _methods(node: ast.ClassDef) -> Iterator[str]:
    """Methods that are defined in the class, or assigned: `delete = Base.delete`."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_":
            yield each.name
    yield from (name for name, _ in _assignments(node) if name in ADAPTER_METHODS)


class _Known(ast.NodeTransformer):
    """Replaces names by the values of the file's plain constants."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._known[node.id]) if node.id in self._known else node


def _constants(node: ast.ClassDef | ast.Module, shared: dict[str, Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in _assignments(node):
        try:
            found[name] = ast.literal_eval(_Known({**shared, **found}).visit(value))
        except ValueError:
            if name == PROMISES:  # ignoring it would mean that the adapter declares no promises
                raise _unreadable(place, value) from None
    return found


def _assignments(node: ast.ClassDef | ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Plain and annotated assignments to names."""
    for each in node.body:
        if isinstance(each, ast.Assign):
            yield from ((target.id, each.value) for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value:
            yield each.target.id, each.value


def _check_promises_are_plain(tree: ast.Module, place: str) -> None:
    """Promises that are computed, changed later or set elsewhere would be read wrongly: refuse them."""
    plain: set[ast.AST] = set()
    bodies = [tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef))]
    for each in (statement for body in bodies for statement in body):
        annotated = [each.target] if isinstance(each, ast.AnnAssign) else []
        targets = each.targets if isinstance(each, ast.Assign) else annotated
        plain |= {target for target in targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        names = [getattr(node, attribute, None) for attribute in ("id", "attr", "name")]
        if PROMISES in names and node not in plain:
            raise _unreadable(place, node)


def _unreadable(place: str, node: ast.AST) -> BadAdapter:
    return BadAdapter(
        f"promises of {place}, line {getattr(node, 'lineno', '?')}: expected one plain dictionary in the"
        " class body, of strings or constants from the same file: chaoskit reads it without running the file"
    )


def _check(class_name: str, path: Path, methods: set[str], facts: dict[str, Any]) -> None:
    missing = _missing(methods)
    if missing:
        raise BadAdapter(f"{class_name} in {path} has no {missing} (docs/adapters.md)")
    style = facts.get("style")
    if style is not None and style not in STYLES:
        raise BadAdapter(f"style of {class_name}: expected {', '.join(STYLES)}, got {style!r}")
    callers = facts.get("callers")
    if callers is not None and callers not in CALLERS:
        raise BadAdapter(f"callers of {class_name}: expected {', '.join(CALLERS)}, got {callers!r}")
    clock = facts.get("clock", "real")
    if clock not in CLOCKS:
        raise BadAdapter(f"clock of {class_name}: expected {', '.join(CLOCKS)}, got {clock!r}")
    for option in ("items_per_call", "saves", "largest"):
        if option in facts and (type(facts[option]) is not int or facts[option] < 1):
            raise BadAdapter(
                f"{option} of {class_name}: expected an integer of at least 1, got {facts[option]!r}"
            )
    names = facts.get("session_names", ("a",))
    plain = isinstance(names, tuple | list) and all(isinstance(name, str) and name for name in names)
    if not plain or not names or len(set(names)) < len(names):
        raise BadAdapter(f"session_names of {class_name}: expected a tuple of different names, got {names!r}")
    deadline = facts.get("deadline", 1)
    if type(deadline) not in (int, float) or not 0 < deadline < float("inf"):
        raise BadAdapter(f"deadline of {class_name}: expected a number of seconds, got {deadline!r}")
    _check_promises(class_name, facts.get(PROMISES, {}))


def _check_promises(class_name: str, promises: Any) -> None:
    if not isinstance(promises, dict):
        raise BadAdapter(
            f"promises of {class_name}: expected a dictionary {{claim: (text, where)}}, got {promises!r}"
        )
    for claim, words in promises.items():
        texts = isinstance(words, tuple) and all(isinstance(word, str) and word.strip() for word in words)
        if not texts or len(words) not in (2, 3) or words[2:] not in ((), ("power",)):
            raise BadAdapter(
                f"promise {claim!r} of {class_name}: expected (text, where) or"
                f' (text, where, "power"), got {words!r}'
            )


def _missing(methods: set[str]) -> str:
    if "start" in methods:
        return "" if "resume" in methods else "resume(directory, world)"
    if not {"open", "close"} <= methods:
        return "open(directory) and close()"
    if not ({"save", "load"} <= methods or {"append", "items"} <= methods):
        return "save and load, nor append and items"
    return ""


def _style(methods: set[str]) -> str:
    if "save" not in methods:
        return "append"
    return "history" if "history" in methods else "snapshot"
