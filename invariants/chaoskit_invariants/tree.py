"""tree: the agents always form a forest that contains every acknowledged agent.

Verifies at the probes `recovered` and `end`: every agent has a link, every link leads to existing agents,
and no agent is its own ancestor. Every acknowledged spawn is present, below its parent. Below a stopped
agent every agent is stopped, and so is every agent acknowledged as stopped. No agent is ACTIVE below a
parent that is not. Cannot see the tree between two probes.

Smallest history that breaks it: ack spawned a below b, end without a.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaoskit.model import Ack, History, Invariant, Json, NothingToJudge, Probe, Violation


def check(history: History) -> Iterator[Violation]:
    if not any("parents" in probe.data for probe in history.of(Probe)):
        raise NothingToJudge
    told: list[Ack] = []
    for event in history.events:
        if isinstance(event, Ack):
            told.append(event)
        elif isinstance(event, Probe) and "parents" in event.data:
            agents, parents = event.data["agents"], event.data["parents"]
            yield from _forest(agents, parents)
            yield from _states(agents, parents)
            yield from _kept(told, agents, parents)


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


INVARIANT = Invariant(
    name="tree",
    summary="the agents form a forest that contains every agent whose spawn was acknowledged",
    check=check,
)
