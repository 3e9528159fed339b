"""Queries on the tree of agents. Pure."""

from __future__ import annotations

from reference_agent.daemon.state import State


def subtree(state: State, agent: str) -> list[str]:
    """The agent and all its descendants; each after its parent."""
    found = [agent]
    for each in found:  # grows during the iteration
        found += state.children.get(each, [])
    return found


def path(state: State, agent: str) -> list[str]:
    """From the root to the agent."""
    found = [agent]
    while (parent := state.parents[found[-1]]) is not None:
        found.append(parent)
    return found[::-1]


def roots(state: State) -> list[str]:
    return [agent for agent, parent in state.parents.items() if parent is None]


def is_stopped(state: State, agent: str) -> bool:
    return agent in state.agents and state.agents[agent].state == "STOPPED"
