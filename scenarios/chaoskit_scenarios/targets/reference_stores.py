"""The reference agent's own stores: a message and its checkpoint, as the agent writes them in a turn.

Each session is opened as the agent opens it: its lock, its log, its store; everything beyond the last
checkpoint is rolled back. A turn that already has its checkpoint is not repeated.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reference_agent.ids import system_clock
from reference_agent.messages import Budget, Message, Plan, Step
from reference_agent.store.kinds import Location, Opening, open_log, open_store
from reference_agent.store.lock import SessionLock
from reference_agent.store.protocol import SessionStore


class Files:
    """The reference agent's store on files: one log of lines per session"""

    style = "history"
    unit = "one write_checkpoint(): the transcript up to it, the plan and the budget"
    callers = "tasks"
    promises = {
        "durable": ("a write is durable when it returns", "reference_agent/store/protocol.py", "power"),
        "atomic": ("a write happens whole or not at all", "reference_agent/store/protocol.py"),
        "prefix": ("ids only grow, and none is reused", "reference_agent/store/protocol.py"),
        "loadable": ("opening cuts off what a crash left unfinished", "reference_agent/store/event_log.py"),
        "continues": ("a write that failed may be tried again", "reference_agent/store/protocol.py"),
        "isolated": ("the durable state of one session", "reference_agent/store/protocol.py"),
        "immutable": ("any version, exactly as it was", "reference_agent/store/protocol.py"),
        "consistent": ("a version is transcript, plan and budget", "reference_agent/store/records.py"),
        "idempotent": (
            "what follows the last checkpoint is rolled back",
            "reference_agent/recovery/rollback.py",
        ),
        "fenced": ("one process per session: the second is refused", "reference_agent/store/lock.py"),
    }
    kind = "files"

    def open(self, directory: str) -> None:
        self.directory = Path(directory)
        self.opened: dict[str, SessionStore] = {}
        self.held = ExitStack()

    async def close(self) -> None:
        for store in self.opened.values():
            await store.close()
        self.held.close()

    async def _of(self, session: str) -> SessionStore:
        if session not in self.opened:
            with ExitStack() as held:  # all of it, or nothing
                lock = SessionLock(self.directory / f"{session}.lock")
                held.callback(lock.release)
                log = open_log(self.directory, session, system_clock)
                held.callback(log.close)
                location = Location(self.directory, self.kind)
                store = await open_store(
                    Opening(location=location, session=session, log=log, clock=system_clock)
                )
                await store.create_session("model", "provider", f"{session}.scratch")
                self.opened[session] = store
                self.held.push(held.pop_all())
        return self.opened[session]

    async def save(self, session: str, state: dict[str, Any]) -> None:
        store, turn = await self._of(session), state["n"]
        latest = await store.latest_checkpoint()
        there = await store.messages()
        certain = latest.last_msg_id if latest else 0
        if there and there[-1].id > certain:
            await store.roll_back_to(certain)
        if any(each.turn == turn and each.id <= certain for each in there):
            return
        await store.add_message(Message("user", json.dumps(state)), turn)
        plan = Plan((Step(f"turn {turn}"),))
        await store.write_checkpoint(turn, plan, Budget(spent_tokens=turn))

    async def load(self, session: str) -> dict[str, Any] | None:
        return (await self.history(session) or [None])[-1]

    async def history(self, session: str) -> list[Any]:
        store = await self._of(session)
        found = [await store.load_version(version) for version in await store.versions()]
        return [json.loads(each.transcript[-1].message.content) for each in found if each]

    async def records(self, session: str) -> dict[str, Any]:
        store = await self._of(session)
        latest = await store.latest_checkpoint()
        found = await store.load_version(latest.version) if latest else None
        if not found or not found.plan:
            return {"checkpoint": latest and latest.turn, "version": None}
        return {
            "message": found.transcript[-1].turn,
            "plan": int(found.plan.steps[0].text.split()[1]),
            "budget": found.budget.spent_tokens,
        }

    async def settings(self) -> dict[str, Any]:
        return {"files": sorted(path.suffix for path in self.directory.iterdir())}


class Sqlite(Files):
    """The reference agent's store on SQLite: one database, a log beside it"""

    kind = "sqlite"
    callers = "one"  # each session's connection has its own thread: two runs would differ

    async def settings(self) -> dict[str, Any]:
        if not self.opened:
            return {}
        database = next(iter(self.opened.values()))._db  # type: ignore[attr-defined]  # noqa: SLF001
        names = ("journal_mode", "synchronous")
        found = {name: (await database.one(f"PRAGMA {name}"))[0] for name in names}
        return found | {"sqlite": sqlite3.sqlite_version}
