"""An agent in this thread, on a virtual clock, in a world that counts effects.

The death of a process is simulated by closing the database under the agent, with any open transaction, and
raising `Death`, which nothing in the agent may catch. Later writes of that life have no effect. On files
there is nothing to close: later writes raise again.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chaoskit_scenarios import inloop
from chaoskit_scenarios.readers import read_session

from reference_agent import points
from reference_agent.ids import ids_from
from reference_agent.messages import Message, unanswered
from reference_agent.providers import TextDelta, ToolSpec
from reference_agent.providers.base import Answer
from reference_agent.providers.scripted import ScriptedProvider
from reference_agent.store.event_log import EventLog
from reference_agent.store.kinds import Location, find
from reference_agent.store.registry import DEFAULT
from reference_agent.turn.agent import Agent
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Runtime
from reference_agent.turn.tools import Tool, Toolbox

SESSION = "s"
FULL = "database or disk is full"


class Death(BaseException):
    """Simulates the death of the process."""


def play(main):
    """Run a coroutine to its end on the virtual loop, without waiting for any deadline."""
    with asyncio.Runner(loop_factory=inloop.VirtualLoop) as runner:
        return runner.run(main)


def step(tool: str, noise: str | None = None, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args, "noise": noise}


def entry(*steps: Sequence[dict[str, Any]], answer: str = "Done.") -> dict[str, Any]:
    return {"steps": [list(each) for each in steps], "answer": answer}


class Home:
    """A directory in which one session lives through several lives."""

    def __init__(
        self,
        path: Path,
        *script: dict[str, Any],
        tools: Iterable[Tool] = (),
        fickle: bool = False,
        registry: HookRegistry | None = None,
        session: str = SESSION,
        store: str = DEFAULT,
        **options: Any,
    ) -> None:
        self.path = path
        self.script = script
        self.tools = list(tools)
        self.fickle = fickle
        self.registry = registry
        self.session = session
        self.store = store
        self.options = Options(**options)
        self.lives = 0
        self.now = 1000.0
        self.effects: list[Any] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[list[Message], str]] = []  # (conversation, system)
        self.on_sql: Callable[[str], None] = lambda _sql: None
        self.on_tell: Callable[[str, dict[str, Any]], None] = lambda _name, _facts: None
        self.on_ask: Callable[[], None] = lambda: None
        self.dead = False
        self._connection: Any = None

    # --- a life

    async def open(self) -> Agent:
        self.lives += 1
        self.dead = False
        fickle = f"life {self.lives}" if self.fickle else None
        agent = await Agent.open(
            Location(self.path, self.store, self._connect),
            session=self.session,
            provider=Watched(self, fickle),
            toolbox=Toolbox(self.tools),
            runtime=Runtime(
                new_id=ids_from(f"{self.session}/{self.lives}"),
                clock=lambda: self.now,
                tell=self._tell,
                hooks=self.registry or HookRegistry(),
            ),
            options=self.options,
        )
        if find(self.store).in_log:
            self._watch_log(agent._events)
        return agent

    def _watch_log(self, log: EventLog) -> None:
        """A line corresponds to a statement on SQLite."""
        sound = log._write

        def write(line: bytes) -> None:
            if self.dead:
                raise Death
            self.on_sql("INSERT")
            sound(line)

        log._write = write  # type: ignore[method-assign]

    @asynccontextmanager
    async def life(self):
        """Ends with the block: closed, or abandoned if it died in between."""
        agent = await self.open()
        try:
            yield agent
        except BaseException:
            await self.bury(agent)
            if not self.dead:
                raise
        else:
            if self.dead:
                await self.bury(agent)
            else:
                await agent.close()

    async def bury(self, agent: Agent) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await agent._store.close()
        agent._events.close()
        agent._lock.release()

    def die(self) -> None:
        self.dead = True
        if self._connection:
            self._connection._conn.close()  # with any open transaction
        raise Death

    def _tell(self, name: str, facts: dict[str, Any]) -> None:
        if self.dead:
            raise Death
        self.told.append((name, dict(facts)))
        self.on_tell(name, facts)

    def _connect(self, database: Any, **options: Any) -> Any:
        home = self

        class Connection(sqlite3.Connection):
            def execute(self, sql, *args):
                home.on_sql(sql)
                if sql == "PRAGMA synchronous = FULL":  # there is no power loss here, so syncs are skipped
                    sql = "PRAGMA synchronous = OFF"
                return super().execute(sql, *args)

        self._connection = inloop.connect(database, factory=Connection, **options)
        return self._connection

    # --- what is visible from outside

    def seen(self) -> dict[str, Any]:
        """What is durable, whatever the store."""
        return read_session(self.path, self.store, self.session)

    def rows(self, query: str, *args: Any) -> list[Any]:
        """Read through a separate connection: only what is durable."""
        db = sqlite3.connect(self.path / "sessions.db")
        try:
            return db.execute(query, args).fetchall()
        finally:
            db.close()

    def change(self, statement: str, *args: Any) -> None:
        db = sqlite3.connect(self.path / "sessions.db")
        db.execute(statement, args)
        db.commit()
        db.close()

    def told_without_seq(self) -> list[tuple[str, dict[str, Any]]]:
        """Without log positions: the log has more lines on files, and nothing else may differ."""
        return [(name, {key: facts[key] for key in facts if key != "log_seq"}) for name, facts in self.told]

    def names_told(self) -> list[str]:
        return [name for name, _facts in self.told]

    # --- the disk

    def fill_disk(self) -> None:
        def refuse(sql: str) -> None:
            if sql.split(maxsplit=1)[0] in ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT"):
                raise sqlite3.OperationalError(FULL)

        self.on_sql = refuse

    def clear_disk(self) -> None:
        self.on_sql = lambda _sql: None

    # --- tools that act on the world

    def acting(self, name: str = "act", **options: Any) -> Tool:
        """A mutating tool; its result says how often the world was changed."""

        async def run(args, key):
            if self.dead:
                raise Death
            self.effects.append((name, args))
            return f"effect {len(self.effects)}"

        return Tool(name=name, run=run, mutating=True, **options)


class Watched:
    """The scripted model; records each request and rejects conversations with an orphan."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, home: Home, fickle: str | None) -> None:
        self._home = home
        self._model = ScriptedProvider(home.script, fickle=fickle)

    async def complete(self, conversation, *, system, tools) -> Answer:
        assert not unanswered(list(conversation)), "an orphan reached the provider"
        self._home.asked.append((list(conversation), system))
        self._home.on_ask()
        return await self._model.complete(conversation, system=system, tools=tools)

    def stream(self, conversation, *, system, tools):
        return self._model.stream(conversation, system=system, tools=tools)


class Points:
    """What the agent persists, as it announces it; `at` is called before and after each."""

    def __init__(self, monkeypatch) -> None:
        self.seen: list[str] = []
        self.at: Callable[[str, str], None] = lambda _name, _when: None
        monkeypatch.setattr(points, "sys", self)

    def audit(self, _event: str, name: str, when: str) -> None:
        if when == "after":
            self.seen.append(name)
        self.at(name, when)


# --- a life in one call

TWO_TURNS = entry([step("act", n=1), step("act", n=2)], [step("act", n=3)])
TURNS = entry(*([step("act", n=n)] for n in range(1, 6)))  # and the answer is turn 6


def say(home, *requests: str):
    """One life that sends each of these requests in turn; its answers, or None where it died."""

    async def main():
        async with home.life() as agent:
            answers = [await agent.say("go", request_id=request) for request in requests or ("r",)]
        return None if home.dead else answers

    return play(main())


def on(kind, handler, **options) -> HookRegistry:
    registry = HookRegistry()
    registry.register(kind, handler, **options)
    return registry


def events(home) -> list[dict]:
    log = EventLog(home.path / f"{home.session}.messages.jsonl", lambda: 0.0)
    log.close()
    return log.events


# --- providers

MODES = ["complete", "stream"]
HELLO = [Message("user", "hello")]
SCRIPT = [
    {
        "steps": [
            [
                {
                    "tool": "pay",
                    "args": {"to": "Zoë", "cents": 5, "more": [{"a": 1, "b": None}]},
                    "noise": "memo",
                },
                {"tool": "look", "args": {}},
            ]
        ],
        "answer": "Paid.",
    }
]
PAY = ToolSpec("pay", "Pays.", {"type": "object", "properties": {"cents": {"type": "integer"}}})


async def asked(provider, mode, conversation=HELLO, *, system="", tools=()):
    """The answer, streamed or not; the deltas of a stream must add up to it (M2)."""
    if mode == "complete":
        return await provider.complete(conversation, system=system, tools=tools)
    items = [item async for item in provider.stream(conversation, system=system, tools=tools)]
    assert all(isinstance(item, TextDelta) for item in items[:-1])
    assert "".join(item.text for item in items[:-1]) == items[-1].message.content
    return items[-1]


def ask(provider, mode="complete", *args, **options):
    return asyncio.run(asked(provider, mode, *args, **options))


def after(decision):
    """The conversation after the tools have run."""
    results = [Message("tool", f"did {c.name}", call_id=c.id, tool=c.name) for c in decision.calls]
    return [*HELLO, decision, *results]
