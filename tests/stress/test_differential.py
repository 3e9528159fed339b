"""The same workload on both stores of the reference agent: clients cannot tell them apart.

One operation at a time, and one call in a turn: what happens at the same time may end in another order,
because the stores take their time at other places.
"""

import re

import msgspec
import pytest

from chaoskit import registry
from chaoskit.model import Effect, Invoke, Ok, Probe, Schedule
from chaoskit.search.rig import open_rig
from chaoskit.settings import Settings

pytestmark = [pytest.mark.stress, pytest.mark.requirement("C2")]
IDS = re.compile(r"(run|rt|call|boot|receipt|r)[_-][0-9a-z]+\b")
EACH = 12
PRIVATE = ("run_id", "token")


def one_after_the_other(content):
    """Each operation is followed by the outcomes of all requests: what it began is over by then."""
    steps = []
    for operation, *_ in content["steps"]:
        if operation["do"] in ("race", "crowd", "stop", "close", "twin"):
            continue
        steps.append([{k: v for k, v in operation.items() if k not in ("at", "leaves")}])
        for session, requests in content["requests"].items():
            steps += [[outcome_of(session, request)] for request in requests]
    scripts = {
        words: {**script, "steps": [calls[:1] for calls in script["steps"]]}
        for words, script in content["scripts"].items()
    }
    return {
        **content,
        "steps": steps,
        "scripts": scripts,
        "together": False,
        "old": False,
        "descriptors": None,
    }


def outcome_of(session, request):
    return {"do": "outcome", "session": session, "request": request["id"], "words": request["words"]}


def answers(run):
    """Each operation with its answer; ids are those of the run."""
    asked = {event.op: event for event in run.history.of(Invoke)}
    for event in run.history.of(Ok):
        answer = {k: v for k, v in (event.result or {}).items() if k not in PRIVATE}
        yield IDS.sub(r"\1", f"{asked[event.op].name} {asked[event.op].args}: {answer}")


def looks(run):
    """What the model was shown, and what an independent reader finds at the end."""
    for event in run.history.of(Probe, "asked"):
        yield IDS.sub(r"\1", f"asked {event.data['said']}")
    for event in run.history.of(Probe, "session"):
        told = {name: event.data[name] for name in ("status", "spent", "conversation", "notes")}
        yield IDS.sub(r"\1", f"at the end {told}")


def effects(run):
    return sorted((e.service, e.action, str(e.args)) for e in run.history.of(Effect) if e.applied)


@pytest.mark.parametrize("part", range(4))
def test_clients_cannot_tell_the_stores_apart(part):
    seen = {}
    for store in ("sqlite", "files"):
        settings = Settings(scenario="agent", store=store, plan="sample")
        with open_rig(registry.resolve(settings)) as (rig, _):
            for seed in range(part * 100, part * 100 + EACH):
                workload = rig.workload(seed)
                content = one_after_the_other(workload.content)
                run, _ = rig.run(Schedule(), msgspec.structs.replace(workload, content=content))
                seen.setdefault(seed, []).append(run)
    for seed, (sqlite, files) in seen.items():
        for view in (answers, looks, effects):
            assert list(view(sqlite)) == list(view(files)), f"workload {seed}"
        assert len(list(answers(sqlite))) > 5
