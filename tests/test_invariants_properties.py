"""Each invariant against its definition: a sound history passes, and no change that breaks it goes unseen.

The histories are those of a simulated agent that is sound by construction, crashed anywhere. A change
replaces what the target did by what it must not do; whichever place is drawn, it must be found.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from chaoskit import registry
from chaoskit.model import Ack, Crashed, Effect, Ended, History, Invoke, NothingToJudge, Probe
from tests import simulated_agent

AGENT = (
    "recovers",
    "exactly-once",
    "single-interruption",
    "prefix-log",
    "model-calls",
    "bookkeeping",
    "rollback",
    "crash-equivalence",
    "cadence",
    "client-consistency",
    "shown",
)
WORK = st.lists(st.lists(st.integers(1, 2), max_size=2), min_size=1, max_size=2)
CRASHES = st.lists(st.integers(1, 40), max_size=3)


class Broken:
    """A history that is about to be broken at places that Hypothesis draws."""

    def __init__(self, events, baseline, data):
        self.events, self.baseline, self._data = list(events), tuple(baseline), data

    def pick(self, among):
        among = list(among)
        assume(among)
        return self._data.draw(st.sampled_from(among))

    def of(self, kind, name=None):
        return [e for e in self.events if isinstance(e, kind) and name in (None, getattr(e, "name", None))]

    def end(self):
        return self.of(Probe, "end")[-1]

    def insert(self, after, event):
        place = next(n for n, e in enumerate(self.events) if e is after)
        self.events.insert(place + 1, event)

    def remove(self, *gone):
        self.events = [e for e in self.events if not any(e is each for each in gone)]

    def change(self, event, **data):
        """Other data in a probe or an acknowledgement."""
        changed = msgspec.structs.replace(event, data={**event.data, **data})
        self.events = [changed if e is event else e for e in self.events]

    def found(self, name):
        try:
            return list(registry.invariant(name).check(History(tuple(self.events), self.baseline)))
        except NothingToJudge:
            return None


def agent_history(data):
    work = data.draw(WORK)
    crashes = data.draw(CRASHES)
    return Broken(simulated_agent.history(work, crashes), simulated_agent.history(work, ()), data)


@pytest.mark.requirement("C2")
@settings(max_examples=150)
@given(data=st.data())
def test_a_sound_agent_is_accused_of_nothing_wherever_it_is_killed(data):
    sound = agent_history(data)
    for name in AGENT:
        assert not sound.found(name), name


# --- what breaks each of them: a function that changes the history, or assumes that it can


def does_it_twice(h):
    effect = h.pick(h.of(Effect))
    h.insert(effect, effect)


def does_not_do_it(h):
    asked = [ack.data["args"] for ack in h.of(Ack, "surfaced")]
    h.remove(h.pick(e for e in h.of(Effect) if e.args not in asked))


def blames_a_finished_call(h):
    finished = h.pick(h.of(Ack, "finished"))
    h.insert(h.events[-2], msgspec.structs.replace(finished, name="surfaced", life=h.end().life))


def retries_what_it_reported(h):
    ack = h.pick(h.of(Ack, "surfaced"))
    h.insert(ack, Effect(ack.life, 0, "mail", "send", ack.data["args"], None, applied=True))


def one_question_for_all(h):
    """Loses every effect but asks about one call only, in a run that was interrupted."""
    assume(len(h.of(Effect)) > 1 and not h.of(Ack, "surfaced") and h.of(Crashed))
    effects = h.of(Effect)
    h.remove(*effects, *h.of(Ack, "finished"))
    data = {"call": "c", "tool": "mail", "args": effects[0].args}
    h.insert(h.events[-2], Ack(h.end().life, 0, "surfaced", data))


def interrupted_line(h):
    acked = {ack.data["run"] for ack in h.of(Ack, "accepted")}
    lines = [json.loads(line) for line in h.end().data["log"]]
    return h.pick(n for n, e in enumerate(lines) if e["kind"] == "run.interrupted" and e["run_id"] in acked)


def with_log(h, edit):
    log = list(h.end().data["log"])
    h.change(h.end(), log=edit(log))


def logs_a_crash_as(kind):
    def change(h):
        line = interrupted_line(h)
        with_log(h, lambda log: [*log[:line], log[line].replace("run.interrupted", kind), *log[line + 1 :]])

    change.__name__ = f"logs_a_crash_as_{kind}"
    return change


def interrupts_twice(h):
    line = interrupted_line(h)
    with_log(h, lambda log: [*log, log[line]])


def forgets_the_interruption(h):
    line = interrupted_line(h)
    with_log(h, lambda log: [*log[:line], *log[line + 1 :]])


def interrupts_the_living(h):
    life = h.end().life
    runs = [ack.data["run"] for ack in h.of(Ack, "accepted") if ack.life == life]
    run = h.pick(runs)
    assume(h.of(Crashed))
    ended = json.dumps({"kind": "run.completed", "run_id": run})[1:-1]
    with_log(h, lambda log: [line.replace(ended, ended.replace("completed", "interrupted")) for line in log])


def loses_the_tail_of_the_log(h):
    acked = max(ack.data["log_seq"] for ack in h.of(Ack) if "log_seq" in ack.data)
    keep = h.pick(range(acked))
    with_log(h, lambda log: log[:keep])


def loses_a_line(h):
    number = h.pick(range(len(h.end().data["log"]) - 1))
    with_log(h, lambda log: [*log[:number], *log[number + 1 :]])


def rewrites_a_line(h):
    ack = h.pick(a for a in h.of(Ack) if "log_seq" in a.data and {"run", "turn"} & set(a.data))
    number = ack.data["log_seq"] - 1
    event = json.loads(h.end().data["log"][number])
    changed = json.dumps({**event, **({"run_id": "x"} if "run" in ack.data else {"turn": 99})}) + "\n"
    for probe in [p for p in h.of(Probe) if "log" in p.data and len(p.data["log"]) > number]:
        log = probe.data["log"]
        h.change(probe, log=[*log[:number], changed, *log[number + 1 :]])


def tears_the_last_line(h):
    with_log(h, lambda log: [*log[:-1], log[-1][:-2]])


def asks_for_a_decision_again(h):
    ack = h.pick(h.of(Ack, "decided"))
    later = h.events[next(n for n, e in enumerate(h.events) if e is ack) :]
    asked = Probe(ack.life, 0, "asked", {"turn": ack.data["turn"], "orphans": []})
    h.insert(h.pick(later), asked)


def rewrites_a_message_for_the_model(h):
    pairs = zip(h.of(Probe, "asked"), h.of(Probe, "asked")[1:], strict=False)
    asked = h.pick(second for first, second in pairs if first.life == second.life)
    h.change(asked, said=["changed", *asked.data["said"][1:]])


def row(h):
    acked = {ack.data["turn"] for ack in h.of(Ack, "decided")}
    usage = h.end().data["usage"]
    return h.pick(n for n, (turn, _) in enumerate(usage) if turn in acked), usage


def never_counts_tokens(h):
    n, usage = row(h)
    h.change(h.end(), usage=[*usage[:n], *usage[n + 1 :]])


def counts_tokens_twice(h):
    n, usage = row(h)
    h.change(h.end(), usage=[*usage, usage[n]])


def counts_other_tokens(h):
    n, usage = row(h)
    h.change(h.end(), usage=[*usage[:n], [usage[n][0], usage[n][1] + 1], *usage[n + 1 :]])


def loses_a_checkpoint(h):
    count = len(h.of(Ack, "turn"))
    h.change(h.end(), versions=[count - 1, count - 1], checkpoints=list(range(1, count)))


def recovery_with_messages(h):
    acked, found = 0, []
    for event in h.events:
        if isinstance(event, Ack) and event.name == "turn":
            acked = event.data["messages"]
        elif isinstance(event, Probe) and event.name == "recovered" and acked:
            found.append((event, acked))
    return h.pick(found)


def recovers_too_little(h):
    probe, acked = recovery_with_messages(h)
    h.change(probe, messages=probe.data["messages"][: h.pick(range(acked))])


def recovers_something_else(h):
    probe, acked = recovery_with_messages(h)
    messages, n = list(probe.data["messages"]), h.pick(range(acked))
    messages[n] = ["user", "something else", None]
    asked = h.of(Ack, "surfaced")
    assume(not asked or h.events.index(asked[0]) > h.events.index(probe))
    h.change(probe, messages=messages)


def keeps_a_partial_turn(h):
    probe, _ = recovery_with_messages(h)
    whole = next(e for e in h.baseline if isinstance(e, Probe) and e.name == "end").data["messages"]
    more = len(probe.data["messages"]) + 1
    assume(more < len(whole) and whole[more - 1][0] != "assistant" and whole[more][0] != "user")
    h.change(probe, messages=whole[:more])


def loses_its_checkpoint(h):
    probe, _ = recovery_with_messages(h)
    h.change(probe, checkpoint=None)


def uninterrupted(h):
    assume(not h.of(Ack, "surfaced"))


def answers_differently(h):
    uninterrupted(h)
    request = h.pick(h.end().data["answers"])
    h.change(h.end(), answers={**h.end().data["answers"], request: "another"})


def answers_what_nobody_asked(h):
    uninterrupted(h)
    h.change(h.end(), answers={**h.end().data["answers"], "x": "yes"})


def forgets_a_message(h):
    uninterrupted(h)
    messages = h.end().data["messages"]
    n = h.pick(range(len(messages)))
    assume(messages[n] != (messages[n + 1] if n + 1 < len(messages) else None) or n + 1 == len(messages))
    h.change(h.end(), messages=[*messages[:n], *messages[n + 1 :]])


def uses_another_service(h):
    uninterrupted(h)
    effect = h.pick(h.of(Effect))
    h.events = [msgspec.structs.replace(e, service="post") if e is effect else e for e in h.events]


def skips_a_checkpoint(h):
    events, found = h.events, []
    for n, event in enumerate(events):
        if isinstance(event, Ack) and event.name == "turn":
            decided = [e for e in events[:n] if isinstance(e, Ack) and e.name in ("decided", "turn")]
            if decided and decided[-1].name == "decided" and decided[-1].life == event.life:
                rest = [e for e in events[n + 1 :] if getattr(e, "name", "") in ("decided", "answer", "end")]
                found += [event] if rest and rest[0].life == event.life else []
    h.remove(h.pick(found))


def takes_an_answer_back(h):
    request = h.pick(ack.data["request"] for ack in h.of(Ack, "answer"))
    answers = {**h.end().data["answers"], request: h.pick([None, "another"])}
    h.change(h.end(), answers=answers)


def fails(h):
    ended = h.of(Ended)[-1]
    h.events = [
        msgspec.structs.replace(e, how=h.pick(["failed", "hung"])) if e is ended else e for e in h.events
    ]


def leaves_quietly(h):
    h.remove(*h.of(Probe, "end"))


def shows_less(h):
    probe = h.pick(p for p in h.of(Probe, "shown") if p.data["shown"])
    n = h.pick(range(len(probe.data["shown"])))
    h.change(probe, shown=[*probe.data["shown"][:n], *probe.data["shown"][n + 1 :]])


def shows_something_else(h):
    probe = h.pick(p for p in h.of(Probe, "shown") if p.data["shown"])
    n = h.pick(range(len(probe.data["shown"])))
    texts = list(probe.data["shown"])
    texts[n] = h.pick(["", "-", texts[n] + "and what was rolled back" * 4])
    h.change(probe, shown=texts)


BREAKS: dict[str, tuple[Callable[[Broken], None], ...]] = {
    "exactly-once": (
        does_it_twice,
        does_not_do_it,
        blames_a_finished_call,
        retries_what_it_reported,
        one_question_for_all,
    ),
    "single-interruption": (
        logs_a_crash_as("run.cancelled"),
        logs_a_crash_as("run.failed"),
        interrupts_twice,
        forgets_the_interruption,
        interrupts_the_living,
    ),
    "prefix-log": (loses_the_tail_of_the_log, loses_a_line, rewrites_a_line, tears_the_last_line),
    "model-calls": (asks_for_a_decision_again, rewrites_a_message_for_the_model),
    "bookkeeping": (never_counts_tokens, counts_tokens_twice, counts_other_tokens, loses_a_checkpoint),
    "rollback": (recovers_too_little, recovers_something_else, keeps_a_partial_turn, loses_its_checkpoint),
    "crash-equivalence": (
        answers_differently,
        answers_what_nobody_asked,
        forgets_a_message,
        uses_another_service,
    ),
    "cadence": (skips_a_checkpoint,),
    "client-consistency": (takes_an_answer_back,),
    "recovers": (fails, leaves_quietly),
    "shown": (shows_less, shows_something_else),
}


def test_every_invariant_of_an_agent_has_a_change_that_breaks_it():
    assert set(BREAKS) == set(AGENT)


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, changes in BREAKS.items() for change in changes]
)
def test_no_change_that_breaks_the_definition_goes_unseen(name, change):
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def property_(data):
        history = agent_history(data)
        change(history)
        assert history.found(name)

    property_()


# --- saves


def stored(saves, keeps_all):
    return [[n, f"text {n}"] for n in (saves if keeps_all else saves[-1:])]


def saves_history(data):
    """Saves, each acknowledged or not, a crash after each few, and a look after each crash."""
    keeps_all, count = data.draw(st.booleans()), data.draw(st.integers(2, 6))
    events, done, life = [], [], 0
    for n in range(1, count + 1):
        events.append(Invoke(life, 0, n, "save", {"n": n, "text": f"text {n}"}))
        done.append(n)
        if data.draw(st.booleans()) or n == 1:
            events.append(Ack(life, 0, "saved", {"n": n}))
        if data.draw(st.booleans()) or n == count:
            life += 1
            events.append(Probe(life, 0, "recovered", {"saves": stored(done, keeps_all)}))
    end = Probe(0, 0, "end", {"saves": stored(done, keeps_all)})
    return Broken(events, (end,), data), keeps_all


def acknowledged(h, probe):
    before = h.events[: h.events.index(probe)]
    return [e.data["n"] for e in before if isinstance(e, Ack)]


@given(data=st.data())
def test_a_sound_store_is_accused_of_nothing(data):
    assert not saves_history(data)[0].found("saves")


@given(data=st.data())
def test_no_lost_save_goes_unseen(data):
    history, keeps_all = saves_history(data)
    probe = history.pick(history.of(Probe))
    numbers = acknowledged(history, probe) if keeps_all else acknowledged(history, probe)[-1:]
    lost = history.pick(numbers)
    assume(keeps_all or [lost, f"text {lost}"] in probe.data["saves"])
    history.change(probe, saves=[each for each in probe.data["saves"] if each[0] != lost])
    assert history.found("saves")


@given(data=st.data())
def test_no_damaged_save_goes_unseen(data):
    history, _ = saves_history(data)
    probe = history.pick(history.of(Probe))
    saves = [list(each) for each in probe.data["saves"]]
    n = history.pick(range(len(saves)))
    saves[n] = history.pick([[saves[n][0], saves[n][1][:-1]], [99, "text 99"]])
    history.change(probe, saves=saves)
    assert history.found("saves")
