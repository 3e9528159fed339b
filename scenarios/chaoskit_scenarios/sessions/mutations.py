"""How each mutant of the session services differs from them. See `agent.mutations`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chaoskit_scenarios.agent.mutations import replace
from reference_agent.recovery import manager as recovery_manager
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.service import coordinator, http_api
from reference_agent.service.coordinator import Coordinator
from reference_agent.service.live_session import Session
from reference_agent.sessions import artifacts, projector, refusals, tokens
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.tokens import Consumed, TokenService, fold_tokens
from reference_agent.store import durable as files
from reference_agent.turn.agent import Agent


def sweeps_twice() -> None:
    sound = RecoveryManager.sweep

    def sweep(self: RecoveryManager, record: SessionRecord) -> list[str]:
        appended = sound(self, record)
        if "run.interrupted" in appended:
            cut = next(e for e in reversed(record.events) if e["kind"] == "run.interrupted")
            record.append("run.interrupted", run_id=cut["run_id"], reason=cut["reason"])
        return appended

    replace(RecoveryManager, "sweep", sweep)


def stores_secrets() -> None:
    for place in (tokens, refusals):
        replace(place, "hashed", lambda secret: secret)


def consumes_in_memory() -> None:
    """Resumes at once, and records the consumption only when the run is over."""
    sound, settle = TokenService.consume, Coordinator._settle
    late: list[tuple[SessionRecord, dict[str, Any]]] = []

    def consume(self: TokenService, text: str, request_id: str, result: Any) -> Consumed:
        token = self._find(text, None, None)
        if token.state != "active":
            return sound(self, text, request_id, result)
        self._check_usable(token)
        fields = {"token_id": token.token_id, "request_id": request_id, "result": result}
        record = self._record
        record.tokens = fold_tokens(record.tokens, {"kind": "token.consumed", **fields})
        self._resume(token.token_id)
        late.append((record, fields))
        return Consumed(record.tokens[token.token_id], result, first=True)

    def settle_late(self: Coordinator, session: Session) -> None:
        if session.is_running:  # the run itself settles, at its end
            for record, fields in late:
                record.append("token.consumed", **fields)
            late.clear()
        settle(self, session)

    replace(TokenService, "consume", consume)
    replace(Coordinator, "_settle", settle_late)


def swaps_precedence() -> None:
    sound = projector.derive

    def derive(snapshot: Any, known: Any, boot: str, now: float) -> Any:
        status = sound(snapshot, known, boot, now)
        waits = snapshot.run and snapshot.run.wait
        return "interrupted_waiting" if status == "interrupted_startup" and waits else status

    for place in (coordinator, recovery_manager):
        replace(place, "derive", derive)


def unsynced_snapshot() -> None:
    def replace_file(path: Path, content: bytes) -> None:
        aside = path.with_name(path.name + ".tmp")
        aside.write_bytes(content)
        aside.replace(path)
        files.sync_directory(path.parent)

    replace(artifacts, "replace_file", replace_file)


def ignores_last_event_id() -> None:
    replace(http_api, "last_seen", lambda _request, _newest: 0)


def cancels_in_memory() -> None:
    async def cancel(self: Agent, reason: str) -> None:
        for request in await self.unfinished():
            self._cancelled[request.request_id] = reason
            self._runner.cancelled = reason

    replace(Agent, "cancel", cancel)


def old_requests_cancel() -> None:
    """Treats every message during a wait as a new message."""

    async def known(self: Coordinator, session: Session, request_id: str) -> None:
        pass

    replace(Coordinator, "_known", known)
