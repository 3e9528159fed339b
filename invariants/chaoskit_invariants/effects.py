"""exactly-once: every intended effect happened once: none lost, none duplicated.

The intended effects are those the target was asked for (probe `meant`), or else those of the undisturbed
run.

Verifies the Ledger, which is kept outside the target: a repeated call that a service recognised by its key
and did not apply again does not count. A lost effect is judged only if the run finished.

If it is impossible to know whether an interrupted call happened, exactly once is impossible. The target
must then not retry (at most once), and must report it (ack `surfaced`): that, and nothing else, excuses a
missing effect. Surfacing a call whose completion was already acknowledged (ack `finished`) is a needless
question.

Cannot see effects on anything but the World.

Smallest history that breaks it: effect, crashed, effect, where the undisturbed run has it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from chaoskit.model import Ack, Effect, Ended, History, Invariant, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    expected = _meant(history)
    if not expected:
        raise NothingToJudge
    done = _done(history.of(Effect))
    for effect, times in (done - expected).items():
        wanted = expected[effect]
        kind = "doubled" if wanted else "unasked"
        yield Violation(kind, f"{effect} was done {wanted + times} times instead of {wanted}")
    surfaced = {_args(ack.data["args"]): ack.data["call"] for ack in history.of(Ack, "surfaced")}
    if any(end.how == "completed" for end in history.of(Ended)):
        for effect in expected - done:
            if effect.split(" ", 1)[1] not in surfaced:
                yield Violation("lost", f"{effect} was never done, and was not reported as unknown")
    yield from _needless(history)


def _meant(history: History) -> Counter[str]:
    """The effects the target reports it was asked for; otherwise those of the undisturbed run."""
    probe = next(history.of(Probe, "meant"), None)
    if probe is None:
        return _done(history.expected(Effect))
    return Counter(f"{s}.{action} {_args(args)}" for s, action, args in probe.data["effects"])


def _needless(history: History) -> Iterator[Violation]:
    finished: set[str] = set()
    for ack in history.of(Ack):
        if ack.name == "finished":
            finished.add(ack.data["call"])
        elif ack.name == "surfaced" and ack.data["call"] in finished:
            yield Violation("needless", f"{ack.data['call']} was finished, then reported as unknown")


def _done(effects: Iterable[Effect]) -> Counter[str]:
    return Counter(f"{e.service}.{e.action} {_args(e.args)}" for e in effects if e.applied)


def _args(args: object) -> str:
    return msgspec.json.encode(args, order="sorted").decode()


INVARIANT = Invariant(
    name="exactly-once",
    summary="every side effect happens exactly once, however often the agent is killed",
    check=check,
)
