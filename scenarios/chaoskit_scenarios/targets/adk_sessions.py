# /// script
# requires-python = ">=3.11"
# dependencies = ["google-adk[db]>=2"]
# ///
"""Google ADK's session services on SQLite: events appended to a session, each with a change of state."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

DOCS = "https://google.github.io/adk-docs/sessions/session/"
API = "https://github.com/google/adk-python/blob/main/src/google/adk/sessions/base_session_service.py"


class Sqlite:
    """Google ADK SqliteSessionService"""

    style = "history"
    unit = "one append_event(): the event and the state change that it carries"
    promises = {
        "durable": ("append_event saves the progress: the event and the new state are stored", DOCS),
        "prefix": ("events are a chronological sequence of all interactions", DOCS),
        "loadable": ("a session is retrieved by its id, and continues where it left off", DOCS),
        "continues": ("new interactions are appended to a session that was resumed", DOCS),
        "isolated": ("a session is one conversation thread", DOCS),
        "consistent": ("append_event adds the event and updates the state from it", DOCS),
        "fenced": ("a session that a newer stored revision has superseded is refused", API),
    }
    saves = 20

    def open(self, directory: str) -> None:
        self.path = Path(directory) / "sessions.db"
        self.service = self._service()
        self.sessions: dict[str, Any] = {}  # as a runner caches them

    def _service(self) -> Any:
        return SqliteSessionService(str(self.path))

    async def close(self) -> None:
        await self.service.close()

    async def save(self, session: str, state: dict[str, Any]) -> None:
        who = {"app_name": "chaoskit", "user_id": "user", "session_id": session}
        at_hand = self.sessions.pop(session, None)
        at_hand = at_hand or await self.service.get_session(**who)
        at_hand = at_hand or await self.service.create_session(**who)
        event = Event(
            author="agent",
            invocation_id=f"turn-{state['n']}",
            content=Content(role="model", parts=[Part(text=json.dumps(state))]),
            actions=EventActions(state_delta={"state": state}),
        )
        await self.service.append_event(at_hand, event)
        self.sessions[session] = at_hand

    async def _found(self, session: str) -> Any:
        return await self.service.get_session(app_name="chaoskit", user_id="user", session_id=session)

    async def load(self, session: str) -> dict[str, Any] | None:
        found = await self._found(session)
        return found.state.get("state") if found else None

    async def history(self, session: str) -> list[dict[str, Any]]:
        found = await self._found(session)
        return [json.loads(each.content.parts[0].text) for each in found.events] if found else []

    async def records(self, session: str) -> dict[str, Any]:
        history, latest = await self.history(session), await self.load(session)
        return {"last event": history[-1]["n"] if history else None, "state": latest and latest["n"]}

    async def delete(self, session: str) -> None:
        self.sessions.pop(session, None)
        await self.service.delete_session(app_name="chaoskit", user_id="user", session_id=session)

    def settings(self) -> dict[str, Any]:
        """The settings of a new connection: the service sets none of these, and opens one for each call."""
        db = sqlite3.connect(self.path)
        names = ("journal_mode", "synchronous")
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        db.close()
        return found | {"sqlite": sqlite3.sqlite_version}


class Database(Sqlite):
    """Google ADK DatabaseSessionService on SQLite"""

    def _service(self) -> Any:
        return DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{self.path}")
