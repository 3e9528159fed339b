"""Workloads of the whole agent as Hypothesis strategies, drawn from a seed as plain data. Pure.

    sessions     their names
    boots        what each start of the process finds: options, tools, hooks. The last one is calm (every
                 tool, no hooks, no limits) and serves all later starts: there, every request can be
                 fulfilled. A `chat` has no server: the first request is made as on the command line
    scripts      by the user's words: what the model decides, turn by turn, and how it fails before that
    steps        what clients do; the operations of one step run at the same time
    together     whether a second process starts at the same time as the first one, on the same new database
    old          whether the first session begins with messages of an older release
    descriptors  how many files the process may have open; None: as many as it likes
    fickle       whether the model words each answer differently
    wire         whether the model is asked over HTTP (only if clients use HTTP, too)
    awake        how many sessions a server keeps open at the same time; None: as many as fit

A call has a label `n`, the same for equal calls of a session: effects, results and decisions are compared by
it. `how` lists what the tool does in its first, second... attempt; after that it behaves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from chaoskit.strategies import drawn

Json = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

SESSIONS = ("a", "b", "a-b")
CALM: Json = {"options": {"max_turns": 60, "retry_base_delay_ms": 100.0}, "without": [], "hooks": []}
# What a tool does in one attempt. Its effect has happened before what follows `act`.
HOW = ("slow", "act slow", "raise", "act raise", "hang", "act hang", "cancel", "act cancel", "act none")
RARE_HOW = ("act dict", "act surrogate", "act nul", "act number")
VERIFIES = ("raise", "hang", "number", "cancel")
PASSING, FINAL = (429, 500, 503, 408, None), (400, 401)  # statuses; None: the connection breaks
LONE, HUGE, INFINITE = "\ue800", "\ue801", "\ue802"  # stand for what plain JSON cannot hold (`values`)
ODD_TEXTS = ("", " ", "\u2028", "a\x00b", LONE, "\u202eabc", "x" * 5000, "call_1_0_0")
ODD_VALUES: tuple[Any, ...] = ("", LONE, HUGE, INFINITE, None, True, [], {}, {"": [{}]}, [LONE])
TOOLS = (
    "pay",
    "pay",
    "mail",
    "mail",
    "post",
    "note",
    "tip",
    "lookup",
    "approve",
    "approve",
    "jot",
    "jot",
    "fail",
    "nothing",
)
# A workload concentrates on something, or on nothing: what is rare among everything is common there.
FOCUS: dict[str, Json] = {
    "anything": {"tools": TOOLS, "fails": 4, "does": ()},
    "waits": {
        "tools": ("approve", "approve", "approve", "pay", "tip", "jot"),
        "fails": 8,
        "how": ("slow", "act slow"),
        "does": ("resume",) * 12 + ("used token",) * 8 + ("cancel",) * 4 + ("race", "rotate") * 2,
        "then": "cancel",
    },
    "failures": {
        "tools": TOOLS,
        "fails": 1,
        "does": ("again",) * 10 + ("cancel",) * 4 + ("continue",) * 4,
        "then": "cancel",
    },
    "stops": {
        "tools": ("approve", "approve", "pay", "mail"),
        "fails": 8,
        "does": ("close",) * 4 + ("again",) * 8 + ("continue",) * 4,
        "hooks": ("AgentStart", "TurnStart", "TurnEnd"),
    },
    "interrupted calls": {
        "tools": ("pay", "mail", "post", "note", "tip", "jot", "mail"),
        "fails": 8,
        "does": ("stop",) * 4,
    },
}
HOOKED = (*("PreToolUse",) * 3, "AgentStart", "TurnStart", "TurnEnd", "PostToolUse", "AgentStop")
BEFORE_A_TOOL = ("deny", "wait", "wait", "change", "raise", "cancel", "odd", "touch")
ELSEWHERE = ("stop", "stop", "say", "raise", "cancel", "odd")
CAN_GO = ("pay", "mail", "post", "tip", "lookup")  # tools that a boot may lack


def workload(seed: int) -> Json:
    found: Json = drawn(workloads(), seed)
    return found


def one_in(number: int) -> st.SearchStrategy[bool]:
    return st.integers(1, number).map(lambda drawn: drawn == number)


def maybe(draw: Draw, number: int, value: st.SearchStrategy[Any], otherwise: Any = None) -> Any:
    return draw(value) if draw(one_in(number)) else otherwise


@cache
def workloads() -> st.SearchStrategy[Json]:
    return _whole()


@st.composite
def _whole(draw: Draw) -> Json:
    sessions = list(SESSIONS[: draw(st.sampled_from((1, 1, 1, 2, 2, 3)))])
    scripts: dict[str, Json] = {}
    focus = FOCUS[draw(st.sampled_from((*FOCUS, "anything")))]
    requests = {session: _requests(draw, session, scripts, focus) for session in sessions}
    boots = [draw(boot(focus.get("hooks"))) for _ in range(draw(st.integers(0, 3)))]
    boots = [each for found in boots for each in [found] * (1 + found["chat"])]  # whoever chats, chats again
    crowd = draw(one_in(40))
    steps = [_step(draw, sessions, requests, focus) for _ in range(draw(st.integers(2, 9)))]
    if crowd:
        steps.insert(draw(st.integers(0, len(steps))), [{"do": "crowd", "many": 40}])
    return {
        "sessions": sessions,
        "boots": [*boots, CALM],
        "scripts": scripts,
        "requests": requests,
        "steps": steps,
        "together": draw(one_in(10)),
        "old": draw(one_in(12)),
        "descriptors": 96 if crowd else None,
        "fickle": draw(one_in(4)),
        "wire": draw(st.booleans()),
        "awake": draw(st.sampled_from((None, None, 1))),
    }


# --- requests and what the model makes of them


def _requests(draw: Draw, session: str, scripts: dict[str, Json], focus: Json) -> list[Json]:
    """Some requests have the words of an earlier one: another id makes it another request."""
    found: list[Json] = []
    labels: list[Json] = []
    for number in range(draw(st.integers(1, 4))):
        if found and draw(one_in(4)):
            words = draw(st.sampled_from(found))["words"]
        else:
            words = f"{session}{number}" + maybe(draw, 6, st.sampled_from(ODD_TEXTS), "")
            scripts[words] = _script(draw, session, labels, f"done {session}{number}", focus)
        found.append({"id": f"{session}-r{number}", "words": words})
    return found


def _script(draw: Draw, session: str, labels: list[Json], answer: str, focus: Json) -> Json:
    steps = [_calls(draw, session, labels, focus) for _ in range(draw(st.sampled_from((0, 1, 1, 2, 2, 3))))]
    failures = {}
    for turn in range(len(steps) + 1):
        if draw(one_in(focus["fails"])):
            failures[str(turn)] = draw(st.lists(_failure(), min_size=1, max_size=6))
    return {
        "steps": steps,
        "answer": answer + maybe(draw, 8, st.sampled_from(ODD_TEXTS), ""),
        "failures": failures,
    }


@st.composite
def _failure(draw: Draw) -> Json:
    status = draw(st.sampled_from(PASSING * 3 + FINAL + ("bug", "cancel", "length")))
    return {"status": status, "retry_after": maybe(draw, 4, st.sampled_from((1.5, 7.0)))}


def _calls(draw: Draw, session: str, labels: list[Json], focus: Json) -> list[Json]:
    found: list[Json] = []
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 4)))):
        if labels and draw(one_in(4)):
            found.append({**draw(st.sampled_from(labels)), "id": None})
            continue
        args: Json = {"n": f"{session}{len(labels)}"}
        if draw(one_in(3)):
            ways = focus.get("how") or (*HOW, *HOW, *RARE_HOW)
            args["how"] = draw(st.lists(st.sampled_from(ways), min_size=1, max_size=2))
        if draw(one_in(6)):
            args["verify"] = draw(st.lists(st.sampled_from(VERIFIES), min_size=1, max_size=2))
        if draw(one_in(8)):
            args["odd"] = draw(st.sampled_from(ODD_VALUES))
        call = {"tool": draw(st.sampled_from(focus["tools"])), "args": args}
        labels.append(call)
        # Some servers number the calls of every answer from 0.
        found.append({**call, "id": maybe(draw, 8, st.sampled_from(("call_0", "", "call_1_0_0")))})
    return found


# --- boots


@st.composite
def boot(draw: Draw, hooked: tuple[str, ...] | None = None) -> Json:
    options: Json = {"retry_base_delay_ms": 100.0}
    options["cadence"] = draw(
        st.sampled_from(({"kind": "turn"}, {"kind": "call"}, {"kind": "periodic", "turns": 3}))
    )
    options["max_turns"] = draw(st.sampled_from((60, 60, 60, 3, 2, 1)))
    options["max_retries"] = draw(st.sampled_from((3, 3, 1, 0)))
    if draw(one_in(6)):
        options["limit_tokens"] = draw(st.sampled_from((1, 150, 400, 1500)))
    hooks = draw(st.lists(hook(hooked), max_size=2)) if hooked or draw(one_in(2)) else []
    return {
        "chat": draw(one_in(5)),
        "options": options,
        "without": maybe(draw, 6, st.lists(st.sampled_from(CAN_GO)), []),
        "hooks": hooks,
    }


@st.composite
def hook(draw: Draw, hooked: tuple[str, ...] | None = None) -> Json:
    """`from` and `times`: which of its events it answers, counted in this boot."""
    on = draw(st.sampled_from(hooked or HOOKED))
    does = BEFORE_A_TOOL if on == "PreToolUse" else ELSEWHERE
    found: Json = {
        "on": on,
        "do": draw(st.sampled_from(does)),
        "from": draw(st.integers(0, 2)),
        "times": draw(st.sampled_from((1, 1, 9))),
    }
    if on == "PreToolUse":
        found["tool"] = draw(st.sampled_from((None, "pay", "mail", "tip|post")))
    return found


# --- what clients do

DOES = (
    *("post",) * 7,
    *("again",) * 4,
    *("resume",) * 4,
    *("continue",) * 3,
    *("cancel",) * 2,
    "rotate",
    "race",
    "later",
    "read",
    "outcome",
    "other words",
    "sweep",
    "stop",
    "close",
    "twin",
    "used token",
)


def _step(draw: Draw, sessions: list[str], requests: dict[str, list[Json]], focus: Json) -> list[Json]:
    many = draw(st.sampled_from((1, 1, 1, 1, 2, 2, 3)))
    found = [_operation(draw, sessions, requests, focus) for _ in range(many)]
    if "then" in focus and draw(st.booleans()):  # while the first one is under way
        at = draw(st.sampled_from((0.05, 0.15, 0.3, 1.0, 2.0)))
        found.append({"do": focus["then"], "session": found[0]["session"], "at": at})
    return found


def _operation(draw: Draw, sessions: list[str], requests: dict[str, list[Json]], focus: Json) -> Json:
    session = draw(st.sampled_from(sessions))
    do = draw(st.sampled_from((*DOES, *focus["does"])))
    request = draw(st.sampled_from(requests[session]))
    found: Json = {"do": do, "session": session}
    if do in ("post", "again", "outcome", "other words"):
        found |= {"request": request["id"], "words": request["words"]}
    if do == "post":
        found["wait"] = draw(st.sampled_from((True, True, True, False)))
    if do in ("resume", "race"):
        which = ("newest", "newest", "newest", "first", "other session", "forged")
        found |= {
            "which": draw(st.sampled_from(which)),
            "as": draw(st.sampled_from(("me", "me", "you"))),
            "result": draw(st.sampled_from(("yes", "yes", "no", "", LONE))),
        }
    if do == "later":
        found["seconds"] = draw(st.sampled_from((30.0, 700.0, 4000.0)))
    if do in ("stop", "close", "twin"):
        found["session"] = sessions[0]
    if draw(one_in(3)):
        found["at"] = draw(st.sampled_from((0.01, 0.05, 0.5, 1.0, 3.0)))  # (virtual) seconds after the others
    if do not in ("stop", "close", "later", "twin") and draw(one_in(10)):
        found["leaves"] = draw(st.sampled_from((0.01, 0.1, 1.0)))  # the client goes away after this
    return found
