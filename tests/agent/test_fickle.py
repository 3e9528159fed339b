"""A model that never answers the same way twice, with a crash at every step (H8)."""

from collections import Counter

import pytest

from reference_agent.store.registry import STORES
from reference_agent.turn.cadence import Cadence
from reference_agent.turn.tools import Tool
from tests.agent.helpers import Death, Home, Points, entry, events, play, step

FICKLE = entry([step("act", n=1, noise="memo"), step("act", n=2)], [step("look")], [step("act", n=3)])
CADENCES = [Cadence(), Cadence("call"), Cadence("periodic", turns=3)]


def fickle_home(path, cadence, store) -> Home:
    path.mkdir()
    home = Home(path, FICKLE, entry([step("act", n=4)]), fickle=True, cadence=cadence, store=store)

    async def look(args, key):
        return "looked"

    async def happened(args, key):
        done = [done["n"] for _name, done in home.effects]
        return f"effect {done.index(args['n']) + 1}" if args["n"] in done else None

    home.tools = [
        home.acting(verify=happened, key=lambda args, _id: str(args["n"])),
        Tool(name="look", run=look),
    ]
    return home


class Bomb:
    """Crashes at the nth step of a life: before and after each persist point, and at each acknowledgement."""

    def __init__(self, home: Home, points: Points, at: int) -> None:
        self.left = at
        self.home = home
        points.at = lambda _name, _when: self.tick()
        home.on_tell = lambda _name, _facts: self.tick()
        home.on_ask = self.tick

    def tick(self) -> None:
        if self.home.dead:
            raise Death
        self.left -= 1
        if self.left == 0:
            self.home.die()


@pytest.mark.requirement("H8")
@pytest.mark.requirement("K2")
@pytest.mark.parametrize("store", STORES.names())
@pytest.mark.parametrize("cadence", CADENCES, ids=["turn", "call", "periodic"])
def test_after_a_crash_at_any_step_every_effect_happens_once_and_no_decision_is_asked_for_again(
    tmp_path, monkeypatch, cadence, store
):
    points = Points(monkeypatch)
    fired = 0
    while True:
        home = fickle_home(tmp_path / str(fired), cadence, store)
        decided = []

        async def main(home=home, decided=decided, at=fired + 1):
            async with home.life() as agent:
                bomb = Bomb(home, points, at)
                await agent.say("go", request_id="r")
                await agent.say("more", request_id="r2")
            home.on_tell, home.on_ask = (lambda *_: None), (lambda: None)
            points.at = lambda *_: None
            decided += [facts["turn"] for name, facts in home.told if name == "decided"]
            if home.dead:
                home.asked_before = len(home.asked)
                async with home.life() as agent:
                    await agent.say("go", request_id="r")
                    await agent.say("more", request_id="r2")
            return bomb.left <= 0

        went_off = play(main())
        assert sorted(args["n"] for _name, args in home.effects) == [1, 2, 3, 4]
        # The request for turn n has n - 1 answers before it: once decided, it is never asked for again.
        asked = Counter(
            1 + sum(message.role == "assistant" for message in said) for said, _system in home.asked
        )
        assert all(asked[turn] == 1 for turn in decided)
        assert sum(asked.values()) <= 6 + 1
        seen = home.seen()
        assert [turn for turn, _tokens in seen["usage"]] == list(range(1, 7))
        kinds = Counter((event["kind"], event.get("run_id")) for event in events(home))
        assert max(kinds[kind, run] for kind, run in kinds if run) == 1
        assert None not in seen["answers"].values()
        if not went_off:
            break
        fired += 1
    assert fired > 80  # there were that many steps, with a crash at each
