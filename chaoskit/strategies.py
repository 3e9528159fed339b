"""Strategies: draw workloads from a seed with Hypothesis, for a scenario that generates its workload.

    from chaoskit.model import Scenario, Target
    from chaoskit.strategies import drawn, names, operation, programs, texts

    OPERATIONS = (operation("save", note=names(), text=texts()), operation("delete", note=names()))

    SCENARIO = Scenario(
        name="notes", summary="notes that are saved and deleted", target=Target(entry="./notes.py:main"),
        workload=lambda seed: drawn(programs(*OPERATIONS, max_size=30), seed), generated=True,
        invariants=("recovers", "./notes.py:NOTHING_LOST"),
    )

`chaoskit run ./notes.py:SCENARIO --plan sample --for 10m` draws a program for each case. The functions below
return ordinary Hypothesis strategies: combine them with those of `hypothesis.strategies`, and use them in
property tests. Hypothesis is imported when the first of them is called.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from chaoskit.cache import cache_directory
from chaoskit.wrong_use import WrongUse

if TYPE_CHECKING:
    from types import ModuleType

    from hypothesis.strategies import SearchStrategy

__all__ = ["drawn", "json_values", "names", "operation", "programs", "request_ids", "session_ids", "texts"]

T = TypeVar("T")
BYTES = 1 << 14  # for the first attempt; what is too large for it, or rejected, is tried with more
ATTEMPTS = 10
ORDINARY = 9  # of ten values
LONG = 100_000  # characters
DELAYS = (0.0, 0.0, 0.001, 0.01, 0.05)  # seconds
TOGETHER = 4  # operations at once, at most
WORDS = ("alpha", "beta", "gamma", "delta", "notes", "work", "a", "b")
TAIL = (
    "",
    " ",
    "\x00",
    "before\x00after",
    "two\nlines\r\n",
    "quote \" and \\ and '",
    "\u2028",  # ends a line for JavaScript, and for str.splitlines
    "\u202eright to left\u202c",
    "e\u0301 is not \u00e9",
    "\ufeffmarked",
    "\U0001f600",
    "null",
    "NaN",
    "-1",
    "{}",
    "../up",
    "%s %d {0}",
)
SURROGATES = ("\ud800", "half \udfff of a pair")
GENERATED = (  # they look as if a program had made them up
    "run_0123456789ab",
    "call_0123456789ab",
    "msg_1.reply",
    "m1.reply",
    "1",
    "0",
    "00000000-0000-4000-8000-000000000000",
    "2026-01-01T00:00:00Z",
)


def drawn(strategy: SearchStrategy[T], seed: int) -> T:
    """A value of the strategy that depends only on the seed, the strategy, and the version of Hypothesis.

    The choices come from the seed's random bytes, as from a fuzzer outside. Hypothesis' own generation would
    also use constants that it finds in the modules loaded so far, which differ from process to process.
    """
    _strategies()
    import hypothesis  # noqa: PLC0415 - lazily: it takes a third of a second

    found: list[T] = []

    @hypothesis.settings(database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategy)
    def note(value: T) -> None:
        found.append(value)

    rng = random.Random(f"drawn/{seed}")
    decode: Callable[[bytes], object] = note.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    for attempt in range(ATTEMPTS):
        decode(rng.randbytes(BYTES << attempt))
        if found:
            return found[0]
    raise WrongUse(f"the strategy found no value for seed {seed}: it rejects nearly all, or is too large")


def names() -> SearchStrategy[str]:
    """Short names out of a few, so that a program names the same thing more than once."""
    words: SearchStrategy[str] = _strategies().sampled_from(WORDS)
    return words


def texts(*, surrogates: bool = False) -> SearchStrategy[str]:
    """Words; one text in ten is one that breaks programs: empty, with NUL, U+2028, bidirectional, 100 kB.

    `surrogates`: also halves of surrogate pairs, which no encoding accepts.
    """
    st = _strategies()
    words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
    tail = (*TAIL, "x" * LONG, *(SURROGATES if surrogates else ()))
    return _mostly(words, st.sampled_from(tail))


def json_values(
    *, non_finite: bool = False, huge: bool = False, surrogates: bool = False
) -> SearchStrategy[Any]:
    """What JSON can say, nested. `non_finite`: also nan and 1e999; `huge`: integers beyond 64 bits.

    The target receives all of these; of what it reports, a history holds only numbers that JSON has.
    """
    st = _strategies()
    numbers = [0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 1e308, 5e-324]
    numbers += [float("nan"), float("inf"), float("-inf")] if non_finite else []
    numbers += [2**64, -(10**40)] if huge else []
    plain = st.none() | st.booleans() | st.sampled_from(numbers) | texts(surrogates=surrogates)
    nested: SearchStrategy[Any] = st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names(), inner, max_size=4),
        max_leaves=8,
    )
    return nested


def session_ids() -> SearchStrategy[str]:
    """A few sessions, mostly; now and then an id that is also a path, a pattern, very long, or other case."""
    st = _strategies()
    usual = st.sampled_from(["s1", "s2", "s3"])
    return _mostly(usual, st.sampled_from(["S1", "s1 ", "..", "a/b", "s%", "s_", "\u00e9", "s" * 200, "-s"]))


def request_ids() -> SearchStrategy[str]:
    """Few enough to be repeated; some look like ids that the program under test generates."""
    st = _strategies()
    return _mostly(st.sampled_from([f"r{n}" for n in range(1, 13)]), st.sampled_from(GENERATED), of=5)


def operation(name: str, **fields: Any) -> SearchStrategy[dict[str, Any]]:
    """`{"do": name, ...}`; each field is a strategy or a constant."""
    st = _strategies()
    given = {key: f if isinstance(f, st.SearchStrategy) else st.just(f) for key, f in fields.items()}
    values = st.tuples(*given.values())
    made: SearchStrategy[dict[str, Any]] = values.map(
        lambda drawn: {"do": name, **dict(zip(given, drawn, strict=True))}
    )
    return made


def programs(
    *operations: SearchStrategy[dict[str, Any]], min_size: int = 1, max_size: int = 20
) -> SearchStrategy[list[list[dict[str, Any]]]]:
    """A list of steps; a step is a list of operations that begin at the same time, each `after` some seconds.

    Three steps of four are one operation. An operation that is given twice is drawn twice as often.
    """
    st = _strategies()
    one = st.one_of(*operations)
    delayed = st.tuples(one, st.sampled_from(DELAYS)).map(lambda pair: {**pair[0], "after": pair[1]})
    alone = one.map(lambda each: [{**each, "after": 0.0}])
    several = st.lists(delayed, min_size=2, max_size=TOGETHER)
    steps = _mostly(alone, several, of=4)
    made: SearchStrategy[list[list[dict[str, Any]]]] = st.lists(steps, min_size=min_size, max_size=max_size)
    return made


def _mostly(usual: SearchStrategy[T], other: SearchStrategy[T], of: int = ORDINARY + 1) -> SearchStrategy[T]:
    """One value in `of` is of the other strategy."""
    chosen: Sequence[SearchStrategy[T]] = [usual] * (of - 1) + [other]
    st = _strategies()
    found: SearchStrategy[T] = st.integers(0, of - 1).flatmap(chosen.__getitem__)
    return found


def _strategies() -> ModuleType:
    """`hypothesis.strategies`. What Hypothesis keeps goes to our cache, unless it is in use already: a
    campaign leaves nothing in the current directory."""
    fresh = "hypothesis" not in sys.modules
    import hypothesis  # noqa: PLC0415
    from hypothesis import configuration, strategies  # noqa: PLC0415

    assert hypothesis
    if fresh:
        configuration.set_hypothesis_home_dir(cache_directory() / "hypothesis")
    return strategies
