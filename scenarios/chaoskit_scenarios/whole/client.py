"""The clients of a generated workload: they perform its operations and report every answer they get.

A refusal that is documented is an answer like any other. Any other exception is reported as `broke`: nobody
who uses the agent as documented should see one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from chaoskit.inside import Life
from chaoskit_scenarios.whole.values import real, shown
from reference_agent.ids import BadSessionId
from reference_agent.messages import unanswered
from reference_agent.service.coordinator import Busy, Coordinator, NothingToDo, Stopping
from reference_agent.service.outcome import Outcome
from reference_agent.sessions.record import UnknownSession
from reference_agent.sessions.tokens import TokenRefused
from reference_agent.store.backlog import FAILURES, NotDurable
from reference_agent.store.lock import SessionBusy
from reference_agent.store.records import OtherContent

Json = dict[str, Any]
NAMELESS = "you"  # a client that sends no ids with its results, over HTTP
OTHER = "something else"  # the words of a request whose id is used again
# The documented refusals, by the name that the HTTP interface gives them.
REFUSALS: dict[type[BaseException], str] = {
    Busy: "busy",
    NothingToDo: "nothing_to_do",
    Stopping: "stopping",
    OtherContent: "request_id_reused",
    NotDurable: "not_durable",
    UnknownSession: "unknown_session",
    BadSessionId: "bad_session_id",
    SessionBusy: "session_busy",
    **dict.fromkeys(FAILURES, "not_durable"),
}


class Refused(Exception):
    """A documented refusal, as the HTTP interface names it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Service(Protocol):
    """What a client can do, in a process or over HTTP. Answers are outcomes as plain data."""

    async def create(self, session: str) -> Json: ...
    async def post(self, session: str, words: str, request: str) -> Json: ...
    async def outcome(self, session: str, request: str) -> Json | None: ...
    async def resume(self, session: str, token: str, request: str, result: str) -> Json: ...
    async def rotate(self, session: str) -> Json: ...
    async def go_on(self, session: str) -> Json: ...
    async def cancel(self, session: str) -> Json: ...
    async def read(self, session: str) -> Json: ...


class InProcess:
    """The coordinator, called directly."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def create(self, session: str) -> Json:
        await self._coordinator.create(session, title=session, provider="scripted", model="scripted-1")
        return {}

    async def post(self, session: str, words: str, request: str) -> Json:
        return plain(await self._coordinator.post(session, words, request))

    async def outcome(self, session: str, request: str) -> Json | None:
        found = await self._coordinator.outcome(session, request)
        return None if found is None else plain(found)

    async def resume(self, session: str, token: str, request: str, result: str) -> Json:
        return plain(await self._coordinator.resume(session, token, request, result))

    async def rotate(self, session: str) -> Json:
        return plain(await self._coordinator.rotate(session))

    async def go_on(self, session: str) -> Json:
        return plain(await self._coordinator.go_on(session))

    async def cancel(self, session: str) -> Json:
        return plain(await self._coordinator.cancel(session))

    async def read(self, session: str) -> Json:
        view = await self._coordinator.read(session)
        run = view.snapshot.run
        open_calls = [call.id for call in unanswered(list(view.messages))]
        return {"state": view.status, "run": run and run.run_id, "end": run and run.end, "open": open_calls}


def plain(outcome: Outcome) -> Json:
    found: Json = msgspec.to_builtins(outcome)
    return found


class Reporter:
    """Reports operations of clients, with the answer that they got."""

    def __init__(self, life: Life, boot: int) -> None:
        self._life = life
        self._boot = boot

    async def report(
        self, operation: Json, work: Callable[[], Awaitable[Any]], leaves: float | None = None
    ) -> Any:
        """The answer, or None; every answer is reported."""
        facts = {
            key: shown(real(value)) if key in ("words", "result") else value
            for key, value in operation.items()
            if key not in ("at", "do")
        }
        with self._life.operation(operation["do"], boot=self._boot, **facts) as reported:
            reported.result = await self._answer(work, leaves)
            return reported.result

    async def _answer(self, work: Callable[[], Awaitable[Any]], leaves: float | None) -> Json:
        try:
            async with asyncio.timeout(leaves):
                found = await work()
        except TimeoutError:
            return {"left": True} if leaves is not None else {"broke": "TimeoutError"}
        except TokenRefused as refusal:
            return {"refused": f"token_{refusal.code}"}
        except Refused as refusal:
            return {"refused": refusal.code}
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return {"broke": "CancelledError"}
        except Exception as error:  # noqa: BLE001 - every answer is an observation
            code = next((code for kind, code in REFUSALS.items() if isinstance(error, kind)), None)
            said = shown(f"{type(error).__name__}: {error}")[:300]
            return {"refused": code, "said": type(error).__name__} if code else {"broke": said}
        return self._as_reported(found)

    def _as_reported(self, found: Json | None) -> Json:
        if found is None:
            return {"state": None}
        if "refused" in found:
            return found
        kept = {
            key: found[key]
            for key in ("state", "request_id", "run_id", "run", "end", "open")
            if found.get(key)
        }
        kept |= {key: shown(found[key]) for key in ("answer", "reason") if found.get(key) is not None}
        if found.get("token"):
            kept["token"] = found["token"].partition(".")[0]
        return kept


class Client(Reporter):
    """Performs operations; remembers outside this process what a client would: tokens it was given."""

    def __init__(self, life: Life, service: Service, boot: int) -> None:
        super().__init__(life, boot)
        self._service = service
        kept = life.call("client", "recall", key="tokens")
        self._tokens: dict[str, list[str]] = dict(kept["tokens"]) if kept else {}
        self._known: dict[str, Callable[[Json], Awaitable[Any]]] = {
            "post": self.post,
            "again": self.post,
            "other words": self._other_words,
            "outcome": self.outcome,
            "resume": self.resume,
            "race": self._race,
            "used token": self._used_token,
            "rotate": lambda operation: self.rotate(operation["session"]),
            "continue": lambda operation: self._continue(operation["session"]),
            "cancel": lambda operation: self._service.cancel(operation["session"]),
            "read": lambda operation: self._service.read(operation["session"]),
        }

    async def perform(self, operation: Json) -> None:
        """One operation at its time; a client that leaves gets no answer."""
        work = self._known[operation["do"]]
        await self.report(operation, lambda: work(operation), operation.get("leaves"))

    # --- operations

    async def post(self, operation: Json) -> Json | None:
        found = await self._service.post(operation["session"], real(operation["words"]), operation["request"])
        if operation.get("wait", True) and found["state"] == "running":
            return await self.outcome(operation)
        return self._keep(operation["session"], found)

    async def _other_words(self, operation: Json) -> Json | None:
        return await self._service.post(operation["session"], OTHER, operation["request"])

    async def outcome(self, operation: Json) -> Json | None:
        session = operation["session"]
        found = await self._service.outcome(session, operation["request"])
        if found and found["state"] in ("failed", "cancelled"):  # what it left behind
            view = await self._service.read(session)
            found = {**found, "open": view["open"] if view["state"] == "idle" else []}
        return found and self._keep(session, found)

    async def resume(self, operation: Json) -> Json:
        token = self._token(operation)
        self._life.ack("presented", session=operation["session"], token=token.partition(".")[0])
        result = real(operation["result"])
        found = await self._service.resume(operation["session"], token, operation["as"], result)
        kept = {"token": token, "as": operation["as"], "result": shown(result)}
        self._life.call("client", "remember", key=f"resumed/{operation['session']}", **kept)
        return found

    async def _used_token(self, operation: Json) -> Json:
        """The last resume again, as by a client whose acknowledgement was lost."""
        session = operation["session"]
        last = self._life.call("client", "recall", key=f"resumed/{session}")
        if not last:
            return {"state": "nothing to repeat"}
        self._life.ack("presented", session=session, token=last["token"].partition(".")[0])
        found = await self._service.resume(session, last["token"], last["as"], last["result"])
        return {**found, "state": "repeated"}

    async def _race(self, operation: Json) -> Json:
        """Three clients present one token, each for a request of its own; at most one may win."""

        def racer(number: int) -> Awaitable[Any]:
            presented = {**operation, "do": "resume", "as": f"racer {number}"}
            return self.report(presented, lambda: self.resume(presented))

        found = await asyncio.gather(*map(racer, range(3)))
        return {"state": f"{sum('refused' not in each for each in found)} won"}

    async def rotate(self, session: str) -> Json:
        return self._keep(session, await self._service.rotate(session))

    async def _continue(self, session: str) -> Json:
        before = await self._service.read(session)
        try:
            return self._keep(session, await self._service.go_on(session))
        except (NothingToDo, Refused) as refusal:
            if getattr(refusal, "code", "nothing_to_do") != "nothing_to_do":
                raise
            return {"refused": "nothing_to_do", "status": before["state"]}

    async def carry_on(self, session: str) -> Json | None:
        """Continue, and wait for what comes of it."""
        found = await self._continue(session)
        if found.get("state") != "running":
            return found
        return await self.outcome({"session": session, "request": found["request_id"]})

    # --- tokens

    def _keep(self, session: str, found: Json) -> Json:
        token = found.get("token")
        if token:
            self._tokens.setdefault(session, []).append(token)
            self._life.call("client", "remember", key="tokens", tokens=self._tokens)
        return found

    def has_token(self, session: str) -> bool:
        return bool(self._tokens.get(session))

    def _token(self, operation: Json) -> str:
        session = operation["session"]
        mine = self._tokens.get(session, [])
        others = [token for name, tokens in self._tokens.items() if name != session for token in tokens]
        which = operation["which"]
        if which == "other session" and others:
            return others[-1]
        if which == "forged" or not mine:
            return mine[-1][:-1] + "!" if mine and which == "forged" else "rt_0.secret_0"
        return mine[0] if which == "first" else mine[-1]
