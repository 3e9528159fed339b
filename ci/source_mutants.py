"""Systematic mutation of source code, as plain data: which small change, where, and the changed source. Pure.

Operators, each aimed at what durability depends on:

    delete      a call, an assignment to an attribute, a `raise`, or a guard (`if ...: return`) is left out
    swap        two neighbouring statements that act change places
    unwrap      a `with` without a name (a lock, a transaction, a deadline) is left out, its body stays
    compare     `<` becomes `<=`, `==` becomes `!=`, `in` becomes `not in`, and so on
    drop        one operand of `and` or `or` is left out
    negate      `not x` becomes `x`
    constant    a number grows by one, True becomes False
    sql         a statement loses its last condition, its order or its `OR IGNORE`

Logging, assertions, annotations and docstrings are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

Edit = Callable[[ast.AST], None]
OTHER = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ENDS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
LOGGING = re.compile(r"\b(_?log|logger|logging|_?logs)\.(debug|info|warning|error|exception|event)\b")
SQL = re.compile(r"^\s*(SELECT|UPDATE|DELETE|INSERT)\b")
SQL_EDITS = (
    (re.compile(r"\s+AND\s+(?!.*\bAND\b)[^()]*?(?=\s+ORDER\b|\s+LIMIT\b|$)", re.S), ""),
    (re.compile(r"\bDESC\b"), ""),
    (re.compile(r"\bOR IGNORE\b"), ""),
)


class SourceMutant(NamedTuple):
    line: int
    operator: str
    code: str  # what it changes, for people
    source: str  # of the whole changed module

    def __str__(self) -> str:
        return f"{self.line}: {self.operator}: {self.code}"


Site = tuple[str, ast.AST, Edit]  # operator, the code that it changes, how


def mutants_of(source: str) -> Iterator[SourceMutant]:
    """Every mutant of a module, in the order of its lines."""
    found: list[SourceMutant] = []
    for index, node in enumerate(ast.walk(ast.parse(source))):
        for operator, changed, edit in _sites(node):
            tree = ast.parse(source)
            edit(next(each for n, each in enumerate(ast.walk(tree)) if n == index))
            text = ast.unparse(ast.fix_missing_locations(tree))
            found.append(SourceMutant(changed.lineno, operator, _short(changed), text))  # type: ignore[attr-defined]
    yield from sorted(found)


def _sites(node: ast.AST) -> Iterator[Site]:
    is_constructor = isinstance(node, ast.FunctionDef) and node.name == "__init__"  # its bugs are obvious
    for body in ("body", "orelse", "finalbody"):
        statements = getattr(node, body, None)
        if (
            isinstance(statements, list)
            and not isinstance(node, ast.Module | ast.ClassDef)
            and not is_constructor
        ):
            yield from _statement_sites(body, statements)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OTHER:
        yield "compare", node, _other_comparison
    if isinstance(node, ast.BoolOp):
        for number, operand in enumerate(node.values):
            yield "drop", operand, _without_operand(number)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negate", node, _twice_negated
    if isinstance(node, ast.Constant):
        yield from _constant_sites(node)


def _statement_sites(body: str, statements: list[ast.stmt]) -> Iterator[Site]:
    for index, statement in enumerate(statements):
        if _acts(statement) or _is_guard(statement):
            yield "delete", statement, _deleted(body, index)
        following = statements[index + 1] if index + 1 < len(statements) else None
        if _acts(statement) and following is not None and _acts(following):
            yield "swap", statement, _swapped(body, index)
        if isinstance(statement, ast.With | ast.AsyncWith) and not any(
            item.optional_vars for item in statement.items
        ):
            yield "unwrap", statement, _unwrapped(body, index)


def _acts(statement: ast.stmt) -> bool:
    if LOGGING.search(ast.unparse(statement)):
        return False
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call | ast.Await)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    if isinstance(statement, ast.AugAssign):
        return True
    return isinstance(statement, ast.Raise | ast.Delete)


def _is_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], ENDS)


def _deleted(body: str, index: int) -> Edit:
    def edit(node: ast.AST) -> None:
        getattr(node, body)[index] = ast.Pass()

    return edit


def _swapped(body: str, index: int) -> Edit:
    def edit(node: ast.AST) -> None:
        statements = getattr(node, body)
        statements[index], statements[index + 1] = statements[index + 1], statements[index]

    return edit


def _unwrapped(body: str, index: int) -> Edit:
    def edit(node: ast.AST) -> None:
        statements = getattr(node, body)
        statements[index : index + 1] = statements[index].body

    return edit


def _other_comparison(node: ast.AST) -> None:
    assert isinstance(node, ast.Compare)
    node.ops[0] = OTHER[type(node.ops[0])]()


def _without_operand(number: int) -> Edit:
    def edit(node: ast.AST) -> None:
        assert isinstance(node, ast.BoolOp)
        del node.values[number]
        if len(node.values) == 1:
            node.values.append(ast.Constant(isinstance(node.op, ast.And)))  # neutral: x and True, x or False

    return edit


def _twice_negated(node: ast.AST) -> None:
    assert isinstance(node, ast.UnaryOp)
    node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)


def _constant_sites(node: ast.Constant) -> Iterator[Site]:
    if isinstance(node.value, bool):
        yield "constant", node, _set(not node.value)
    elif isinstance(node.value, int | float):
        yield "constant", node, _set(node.value + 1)
    elif isinstance(node.value, str) and SQL.match(node.value):
        for pattern, other in SQL_EDITS:
            if pattern.search(node.value):
                yield "sql", node, _set(pattern.sub(other, node.value, count=1))


def _set(value: object) -> Edit:
    def edit(node: ast.AST) -> None:
        assert isinstance(node, ast.Constant)
        node.value = value  # type: ignore[assignment]

    return edit


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:87]}..."
