"""The daemon as a target: agents in a tree, and a client that performs each operation at its time.

A life opens the daemon once or more, a *boot* each: after each phase of the workload it closes it, and a
message may kill the process. Such a death is simulated: the boot's tasks take no further step, and the next
boot begins with what is on disk. A boot that follows a death performs the phase again, and each life performs
all phases; operations performed before are recognised by the ids of agents and messages.

The client reports the outcome of each operation, whatever it is:

    {"outcome": "done", ...}                        with "said" for a reply, "id" for a message
    {"outcome": "refused", "kind": ..., "why": ...} with an exception that the daemon documents
    {"outcome": "cancelled"}                        the client cancelled it, and it ended with that
    {"outcome": "error", "why": ...}                the disk refused
    fail                                            any other exception

The life's seed also determines which of the ready tasks runs first, and how long SQLite takes.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaoskit.inside import Life
from chaoskit_scenarios import inloop
from chaoskit_scenarios.readers import read_daemon
from chaoskit_scenarios.tree.spelling import digest_of, text_of
from chaoskit_scenarios.tree.unruly import HELD, UnrulyProvider
from reference_agent.daemon import tree
from reference_agent.daemon.daemon import Daemon
from reference_agent.daemon.delivery import NotAnswered
from reference_agent.daemon.journal import MailboxFull, Refused
from reference_agent.daemon.lives import AgentFailed
from reference_agent.daemon.mailbox import Limits
from reference_agent.daemon.records import DAEMON, AnyChange
from reference_agent.daemon.state import State
from reference_agent.daemon.stores import DaemonStore, opened_store
from reference_agent.ids import BadSessionId, ids_from
from reference_agent.store.kinds import Location
from reference_agent.store.registry import DEFAULT

DOCUMENTED = (Refused, NotAnswered, AgentFailed, BadSessionId)
DISK = (OSError, sqlite3.OperationalError)
MOST_DEATHS = 20  # of one life; each deadly message may cause five
SETTLING = 3  # attempts: a worker that a disk error stopped has to be started again
PATIENCE = 3600  # seconds of virtual time within which a cancelled operation must end
LONG_LINE = 4000  # characters

Step = dict[str, Any]
Outcome = dict[str, Any]


def main(life: Life) -> None:
    order, delays = (random.Random(f"{w}/{life.seed}/{life.number}") for w in ("order", "delays"))
    life.probe("limits", mailbox=life.workload["mailbox"])
    phases = life.workload["phases"]
    done = deaths = 0
    while done < len(phases):
        boot = Boot(life, done, f"{life.seed}/{life.number}/{done + deaths}")
        try:
            inloop.run_mortal(boot.run(delays), order)
            done += 1
        except inloop.Died:
            deaths += 1
            life.tainted = True
            _release_lock(life.directory)
            if deaths > MOST_DEATHS:
                raise


def _release_lock(directory: Path) -> None:
    """As the end of a process does."""
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if fd.readlink() == directory / "daemon.lock":
                os.close(int(fd.name))


class Boot:
    """One opening of the daemon, for one phase."""

    def __init__(self, life: Life, phase: int, name: str) -> None:
        self._life = life
        self._kind = life.store or DEFAULT
        self._phase = phase
        self._name = name
        self._is_degraded = False  # a write has failed
        self._is_first = not life.number and name.endswith("/0")

    async def run(self, delays: random.Random) -> None:
        life, asked = self._life, self._life.workload
        location = Location(life.directory, self._kind, inloop.connecting(delays))
        async with opened_store(location, clock=life.now, segment=asked["segment"]) as store:
            self._notice_errors(store)
            provider = UnrulyProvider(life.seed, lambda: life.ack("died"), self._takes_turn(store))
            limits = Limits(mailbox=asked["mailbox"])
            daemon = Daemon(store, {"scripted": provider}, new_id=ids_from(self._name), limits=limits)
            if not self._is_first:
                life.probe("found", **to_be_prompted(store.state))
            await daemon.recover()
            if not self._is_first:
                self._look("recovered", daemon)
            await daemon.start()
            steps = asked["phases"][self._phase]
            earlier = itertools.chain.from_iterable(asked["phases"][: self._phase])
            client = Client(life, daemon, provider, steps, spawned(steps) - spawned(earlier))
            await client.perform()
            if self._phase == len(asked["phases"]) - 1:
                await self._finish(client)
                if self._is_degraded:  # what a failed write has left on disk does not count, but is there
                    life.probe("degraded")
                else:
                    self._look("end", daemon)
            await daemon.close()

    def _takes_turn(self, store: DaemonStore) -> Callable[[str], None]:
        """Reported if the agent is not ACTIVE: nobody has woken it, or a write that said so has failed."""

        def check(agent: str) -> None:
            state = store.state.agents[agent].state
            if state != "ACTIVE":
                self._life.probe("idle-turn", agent=agent, state=state)

        return check

    def _notice_errors(self, store: DaemonStore) -> None:
        """The client does not see all of them: it may have cancelled the operation."""
        sound = store.write

        async def write(change: AnyChange) -> None:
            try:
                await sound(change)
            except DISK:
                self._is_degraded = True
                raise

        store.write = write  # type: ignore[method-assign]

    async def _finish(self, client: Client) -> None:
        for step in self._life.workload["call"]:
            await client.do(step)
        await client.settle()
        for step in self._life.workload["fill"]:
            await client.do({**step, "named": self._name})

    def _look(self, name: str, daemon: Daemon) -> None:
        found = read_daemon(self._life.directory, self._kind)
        found["log"] = [_shortened(line) for line in found["log"]]
        self._life.probe(name, **found, memory=in_memory(daemon))


def _shortened(line: str) -> str:
    if len(line) <= LONG_LINE:
        return line
    seq = line.partition(",")[0]  # the first field
    return f'{seq}, "digest": "{digest_of(line)}"}}\n'


def to_be_prompted(state: State) -> dict[str, Any]:
    """The roots that were ACTIVE at the crash and have no prompt in their mail, and all prompts so far."""
    prompts = {m.message_id for m in state.undelivered.values() if m.sender == DAEMON}
    prompted = {state.undelivered[name].receiver for name in prompts}
    active = {root for root in tree.roots(state) if state.agents[root].state == "ACTIVE"}
    settled = {name for name, (message, _) in state.settled.items() if message.sender == DAEMON}
    return {"active": sorted(active - prompted), "prompts": sorted(prompts | settled)}


def in_memory(daemon: Daemon) -> dict[str, Any]:
    """What the daemon says about its state."""
    state = daemon.state
    return {
        "agents": {agent: record.state for agent, record in state.agents.items()},
        "parents": state.parents,
        "children": {agent: children for agent, children in state.children.items() if children},
        "undelivered": list(state.undelivered),
        "asking": state.asking,
        "questions": Counter(each.sender for each in state.undelivered.values() if each.wants_reply),
    }


class Client:
    """Its operations wait for the `fresh` agents that they involve."""

    def __init__(
        self, life: Life, daemon: Daemon, provider: UnrulyProvider, steps: list[Step], fresh: set[str]
    ) -> None:
        self._life = life
        self._daemon = daemon
        self._provider = provider
        self._steps = steps
        self._answered = {agent: asyncio.Event() for agent in fresh}

    async def perform(self) -> None:
        await asyncio.gather(*map(self.do, self._steps))
        await self.settle()

    async def do(self, step: Step) -> None:
        """Perform a step at its time, but not before the agents it involves exist."""
        what = step["do"]
        await asyncio.sleep(step.get("at", 0))
        roles = ("parent",) if what == "spawn" else ("agent", "by", "to")
        for agent in map(step.get, roles):
            if agent in self._answered and not (what == "spawn" and agent == step["agent"]):
                await self._answered[agent].wait()
        try:
            await self._performed(step)
        finally:
            if what == "spawn" and step["agent"] in self._answered:
                self._answered[step["agent"]].set()

    async def _performed(self, step: Step) -> None:
        if step["do"] in ("ask", "question", "send") and "cancel" not in step and not self._is_call(step):
            done = await self._report("send", step, self._send)
            if done and step["do"] == "ask":
                await self._report("reply", {"id": done["id"]}, self._reply)
            return
        what = "send" if step["do"] == "question" else step["do"]
        await self._report(what, step, getattr(self, f"_{what}"))

    def _is_call(self, step: Step) -> bool:
        return bool(step["id"].startswith("call-"))

    async def settle(self) -> None:
        """A disk error may have stopped workers: they are started again."""
        for _ in range(SETTLING):
            if await self._report("settle", {}, self._settle):
                return
        raise AssertionError("what is undelivered cannot be delivered")

    async def _report(self, what: str, step: Step, performing: Any) -> Outcome | None:
        """Perform an operation and report its outcome. Return it if it is done."""
        outcome: Outcome = {}
        # Not BaseException: nothing is reported when a dead program is taken apart.
        with (
            suppress(Exception, asyncio.CancelledError),
            self._life.operation(what, **told(step)) as operation,
        ):
            outcome = operation.result = await self._outcome(performing(step), step.get("cancel"))
        return outcome if outcome.get("outcome") == "done" else None

    async def _outcome(self, performing: Coroutine[Any, Any, Outcome], cancel: float | None) -> Outcome:
        is_cancelled = False
        try:
            if cancel is None:
                return {"outcome": "done", **(await performing)}
            task = asyncio.ensure_future(performing)
            await asyncio.wait({task}, timeout=cancel)
            is_cancelled = task.cancel()
            await asyncio.wait({task}, timeout=PATIENCE)
            assert task.done(), "it was cancelled, and went on"
            return {"outcome": "done", **task.result()}
        except DOCUMENTED as error:
            return {"outcome": "refused", "kind": type(error).__name__, "why": str(error)}
        except DISK as error:
            return {"outcome": "error", "why": str(error)}
        except asyncio.CancelledError:
            if not is_cancelled:
                raise
            return {"outcome": "cancelled"}

    async def _spawn(self, step: Step) -> Outcome:
        agent, parent, model = step["agent"], step["parent"], step.get("model", "scripted-1")
        await self._daemon.spawn(agent, parent=parent, provider="scripted", model=model)
        self._life.ack("spawned", agent=agent, parent=parent)
        return {}

    async def _send(self, step: Step) -> Outcome:
        asks = step["do"] != "send"
        name = await self._daemon.send(
            step["to"],
            text_of(step["content"]),
            sender=step["by"],
            message_id=text_of(step["id"]),
            wants_reply=asks,
        )
        self._sent(name, step)
        return {"id": name}

    def _sent(self, name: str, step: Step) -> None:
        facts = told(step)
        self._life.ack(
            "sent", id=name, to=step["to"], asks=facts["asks"], poison=facts["doomed"], **{"from": step["by"]}
        )

    async def _ask(self, step: Step) -> Outcome:
        said = await self._daemon.ask(
            step["to"], text_of(step["content"]), sender=step["by"], message_id=text_of(step["id"])
        )
        if step["id"]:  # else nobody knows its id
            self._sent(text_of(step["id"]), step)
            self._life.ack("replied", id=text_of(step["id"]), said=said)
        return {"id": text_of(step["id"]), "said": said}

    async def _reply(self, step: Step) -> Outcome:
        said = await self._daemon.reply_to(step["id"])
        self._life.ack("replied", id=step["id"], said=said)
        return {"said": said}

    async def _suspend(self, step: Step) -> Outcome:
        await self._daemon.suspend(step["agent"])
        return {}

    async def _resume(self, step: Step) -> Outcome:
        await self._daemon.resume(step["agent"])
        return {}

    async def _stop(self, step: Step) -> Outcome:
        await self._daemon.stop(step["agent"])
        self._life.ack("stopped", agent=step["agent"])
        return {}

    async def _settle(self, _step: Step) -> Outcome:
        await self._daemon.start()
        await self._daemon.settled()
        return {}

    async def _fill(self, step: Step) -> Outcome:
        """How many messages the agent's mailbox takes while the agent is busy with the first of them."""
        agent, accepted = step["agent"], 0
        self._provider.released.clear()
        try:
            with suppress(MailboxFull):
                while accepted <= step["mailbox"]:
                    name = f"fill-{step['named']}-{agent}-{accepted}"
                    await self._daemon.send(agent, HELD, message_id=name)
                    accepted += 1
        finally:
            self._provider.released.set()
            await self._settle(step)
        return {"accepted": accepted}


def spawned(steps: Iterable[Step]) -> set[str]:
    return {step["agent"] for step in steps if step["do"] == "spawn"}


def told(step: Step) -> dict[str, Any]:
    """The arguments of an operation, as the history has them."""
    facts = {key: value for key, value in step.items() if key not in ("at", "do", "cancel")}
    if "id" in facts:
        facts["id"] = text_of(facts["id"])
    if "content" in facts:
        facts["digest"] = digest_of(text_of(facts["content"]))
        facts["asks"] = step["do"] != "send"
        facts["doomed"] = is_doomed(step)
        facts["storable"] = "~surrogate~" not in step["id"] + step["content"]
    return facts


def is_doomed(step: Step) -> bool:
    """Whether the receiver may fail to handle it, however often it tries."""
    doomed = ("poison", "mute", "number", "garbled", "hang", "cancels", "blobless", "flaky", "deadly")
    return step["content"] in doomed or step["to"].startswith("z")
