"""tree: the agents always form a forest that contains every acknowledged agent.

Verifies at the probes `recovered` and `end`: every agent has a link, every link leads to existing agents,
and no agent is its own ancestor. Every acknowledged spawn is present, below its parent. Below a stopped
agent every agent is stopped, and so is every agent acknowledged as stopped. An agent whose spawn was
acknowledged is stopped only if somebody asked for that (invoke or ack of its stop, or of an agent above
it). No agent is ACTIVE below a parent that is not. What one probe shows stays true: no agent disappears,
moves, or stops being STOPPED. Cannot see the tree between two probes.

Smallest history that breaks it: ack spawned a below b, end without a.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, Event, History, Invariant, Invoke, Json, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    if not any("parents" in probe.data for probe in history.of(Probe)):
        raise NothingToJudge
    told: list[Ack] = []
    to_stop: set[str] = set()
    before: Json = {"agents": {}, "parents": {}}
    for event in history.events:
        if _asks_to_stop(event):
            to_stop.add(_facts(event)["agent"])
        if isinstance(event, Ack):
            told.append(event)
        elif isinstance(event, Probe) and "parents" in event.data:
            agents, parents = event.data["agents"], event.data["parents"]
            yield from _forest(agents, parents)
            yield from _states(agents, parents)
            yield from _kept(told, agents, parents)
            yield from _killed(told, to_stop, agents, parents)
            yield from _lasting(before, event.data)
            before = event.data


def _asks_to_stop(event: Event) -> bool:
    stops = isinstance(event, Invoke) and event.name == "stop"
    return stops or (isinstance(event, Ack) and event.name == "stopped")


def _facts(event: Event) -> Json:
    return event.args if isinstance(event, Invoke) else getattr(event, "data", {})


def _forest(agents: Json, parents: Json) -> Iterator[Violation]:
    for agent in agents:
        if agent not in parents:
            yield Violation("orphan", f"{agent} has a record but no place in the tree")
    for agent, parent in parents.items():
        for end in (agent, parent):
            if end is not None and end not in agents:
                yield Violation("dangling", f"{agent} is under {parent}, but {end} does not exist")
        above, seen = parent, {agent}
        while above is not None and above not in seen:
            seen.add(above)
            above = parents.get(above)
        if above is not None:
            yield Violation("cycle", f"{agent} is its own ancestor")


def _states(agents: Json, parents: Json) -> Iterator[Violation]:
    for agent, parent in parents.items():
        if agent not in agents or parent not in agents:
            continue
        own, above = agents[agent]["state"], agents[parent]["state"]
        if above == "STOPPED" and own != "STOPPED":
            yield Violation("abandoned", f"{agent} is {own}, but its parent {parent} is stopped")
        elif own == "ACTIVE" and above != "ACTIVE":
            yield Violation("alone", f"{agent} is ACTIVE, but its parent {parent} is {above}")


def _kept(told: list[Ack], agents: Json, parents: Json) -> Iterator[Violation]:
    for ack in told:
        if ack.name == "spawned":
            agent, parent = ack.data["agent"], ack.data["parent"]
            if agent not in agents or agent not in parents:
                yield Violation("lost", f"{agent} was spawned, but does not exist")
            elif parents[agent] != parent:
                yield Violation("moved", f"{agent} was spawned under {parent}, but is under {parents[agent]}")
        elif ack.name == "stopped":
            agent = ack.data["agent"]
            if agent in agents and agents[agent]["state"] != "STOPPED":
                yield Violation("revived", f"{agent} was stopped, but is {agents[agent]['state']}")


def _killed(told: list[Ack], to_stop: set[str], agents: Json, parents: Json) -> Iterator[Violation]:
    for agent in dict.fromkeys(ack.data["agent"] for ack in told if ack.name == "spawned"):
        if agents.get(agent, {}).get("state") == "STOPPED" and not to_stop & _line(agent, parents):
            yield Violation("killed", f"{agent} is stopped, but nobody requested that")


def _line(agent: str, parents: Json) -> set[str]:
    """The agent and its ancestors."""
    line: set[str] = set()
    above: str | None = agent
    while above is not None and above not in line:
        line.add(above)
        above = parents.get(above)
    return line


def _lasting(before: Json, now: Json) -> Iterator[Violation]:
    for agent, parent in before["parents"].items():
        if agent not in now["parents"]:
            yield Violation("lost", f"{agent} was there when the tree was last read, but is gone now")
        elif now["parents"][agent] != parent:
            yield Violation("moved", f"{agent} was under {parent}, but is now under {now['parents'][agent]}")
    for agent, record in before["agents"].items():
        state = now["agents"].get(agent, record)["state"]
        if record["state"] == "STOPPED" != state:
            yield Violation("revived", f"{agent} was STOPPED when the tree was last read, but is now {state}")


INVARIANT = Invariant(
    name="tree",
    summary="the agents form a forest that contains every agent whose spawn was acknowledged",
    check=check,
)
