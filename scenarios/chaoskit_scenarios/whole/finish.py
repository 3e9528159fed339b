"""The end of a workload: everything accepted comes to its end, and the disk is looked at."""

from __future__ import annotations

import asyncio
from typing import Any

from chaoskit_scenarios.readers import read_session
from chaoskit_scenarios.sessions.target import NEVER_STORED
from chaoskit_scenarios.whole.plugins import facts_of
from chaoskit_scenarios.whole.server import Server
from chaoskit_scenarios.whole.values import shown
from reference_agent.service.coordinator import OBSERVED
from reference_agent.store.registry import DEFAULT

Json = dict[str, Any]
ROUNDS = 12  # each settles something, or there is something wrong


class End:
    """What clients do until nothing is open, on a calm boot."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._life = server.life
        self._client = server.client

    async def finish(self) -> None:
        """Everything accepted comes to its end, every session can still be used, and all is as reported."""
        for session in self._life.workload["sessions"]:
            await self._finish(session)
        await self._server.coordinator.sweep()
        for session in self._life.workload["sessions"]:
            await self._read_events(session)
        degraded = await self._look()
        await self._server.close()
        if not degraded:
            self._life.probe("end", never=NEVER_STORED)

    async def _read_events(self, session: str) -> None:
        """Where clients can watch: everything up to the newest event is seen once, in order."""
        if self._life.workload.get("http"):
            lines = (await self._server.coordinator.session(session)).record.events
            newest = max((line["seq"] for line in lines if line["kind"] in OBSERVED), default=0)
            await self._server.service.events(self._life, session, newest)  # type: ignore[attr-defined]

    async def _finish(self, session: str) -> None:
        for _ in range(ROUNDS):
            found = await self._client.report(
                {"do": "continue", "session": session, "finishing": True},
                lambda: self._client.carry_on(session),
            )
            if found.get("refused") == "nothing_to_do" and not await self._bring(session):
                break
        for request in self._life.workload["requests"][session]:
            await self._settle(session, request)
        canary = {
            "do": "post",
            "session": session,
            "request": f"{session}-canary-{self._server.boots}",
            "words": "still there?",
        }
        await self._client.perform(canary)

    async def _settle(self, session: str, request: Json) -> None:
        asks = {
            "do": "again",
            "session": session,
            "request": request["id"],
            "words": request["words"],
            "finishing": True,
        }
        for _ in range(ROUNDS):
            found = await self._client.report(asks, lambda: self._client.post(asks))
            if found.get("state") != "waiting":
                return
            await self._bring(session)

    async def _bring(self, session: str) -> bool:
        """The result that the session waits for; whether it did wait.

        Its client repeats its last resume first, and uses the token that it has. A new token comes last.
        """
        brings = {"do": "resume", "session": session, "which": "newest", "as": "finisher", "result": "yes"}
        if self._client.has_token(session):
            await self._client.perform({"do": "used token", "session": session})
            await asyncio.sleep(1)  # (virtual) until nothing that this may have begun is under way
            found = await self._client.report(brings, lambda: self._client.resume(brings))
            if "refused" not in found:
                await self._until_it_ends(session)
                return True
        found = await self._client.report(
            {"do": "rotate", "session": session}, lambda: self._client.rotate(session)
        )
        if "refused" in found:
            return False
        await self._client.report(brings, lambda: self._client.resume(brings))
        await self._until_it_ends(session)
        return True

    async def _until_it_ends(self, session: str) -> None:
        run = (await self._server.coordinator.session(session)).record.snapshot.run
        if run is not None and run.request_id is not None:
            asks = {"session": session, "request": run.request_id}
            await self._client.report({"do": "outcome", **asks}, lambda: self._client.outcome(asks))

    async def _look(self) -> bool:
        """What is on the disk at the end, as an independent reader sees it; whether writes are waiting."""
        degraded = False
        for name in self._life.workload["sessions"]:
            await self._server.coordinator.read(name)  # wakes it, if it sleeps
            session = await self._server.coordinator.session(name)
            agent = session.agent
            assert agent is not None
            status = await agent.status()
            degraded |= status.degraded
            view = self._server.coordinator.look(session)
            notes = self._life.directory / f"{name}.scratch" / "notes.txt"
            seen = read_session(self._life.directory, self._life.store or DEFAULT, name)
            self._life.probe(
                "session",
                session=name,
                status=view.status,
                boot=self._server.boot_id,
                now=self._server.now(),
                lines=len(session.record.events),
                spent=status.budget.spent_tokens,
                questions=[shown(call.call_id) for call in status.open_questions],
                conversation=[facts_of(message) for message in agent.conversation],
                notes=notes.read_text().count("\n") if notes.exists() else 0,
                **seen,
            )
        if degraded:
            self._life.probe("degraded")
        return degraded
