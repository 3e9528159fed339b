"""The chat: one session of the agent with a person at the terminal. Every error is reported in one line.

    Chat ── lines ──> Agent ──> Interruptible(provider) ──> NoteTaker | any OpenAI-compatible service
      ^                 │
      └── Screen <──────┘  text as it streams, tool calls and results when they are done

Guarantees, cited as C1... by the tests:

C1  After a crash the conversation so far is shown again, and an unfinished request is completed first.
C2  When the prompt returns, the answer above it is durable; if it is not, a line reports that.
C3  Ctrl-C ends the wait for the model and gives up the request, which is recorded. A running tool is not
    interrupted; a second Ctrl-C ends the process as a kill would, which loses nothing: the next resume
    completes the request.
    SIGTERM is such a second Ctrl-C, except at the prompt, where it closes the session first.
C4  An error is one line that says what failed and where. The chat continues where it can.

The loop is synchronous and enters asyncio once per request. In between, `input` blocks as in any program,
with its line editing, and Ctrl-C at the prompt has its usual meaning.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, TypeVar

from reference_agent.ids import random_id
from reference_agent.terminal.problems import INTERNAL, INTERRUPTED, TERMINATED, Problem
from reference_agent.terminal.screen import Screen, call_shown, complain, counted, shortened, tell
from reference_agent.terminal.setup import Setup, checked_id, explained, open_session, prepared, stored
from reference_agent.turn.agent import Agent
from reference_agent.turn.ending import GaveUp

T = TypeVar("T")
NOTICED = 0.05  # seconds until a signal is sent again


HELP = """\
/resume ID   switch to another session: shows it, then finishes what a crash interrupted
/sessions    list the sessions in this state directory
/status      whether everything is saved, tokens spent, open questions
/help        show this list
/quit        quit (as does end of input); Ctrl-C stops waiting for an answer
Anything else is sent to the agent."""


class Chat:
    def __init__(self, setup: Setup, runner: asyncio.Runner) -> None:
        self._setup = setup
        self._runner = runner
        self._screen = Screen()
        self._agent: Agent | None = None
        self._session = ""

    def begin(self, resume: str | None) -> None:
        if resume is not None:
            self._resume(resume)
            return
        session = secrets.token_hex(4)
        with explained(self._setup):
            self._setup.make_directory()
            self._agent = self._run(open_session(self._setup, session, tell=self._screen.hear))
        self._session = session
        tell(f"session {session}")
        tell(f"to resume it: {self._setup.line_to_resume(session)}")
        tell("/help lists the commands")
        self._screen.follow(self._agent.conversation)

    def loop(self) -> None:
        while (line := self._read()) is not None and line != "/quit":
            if line:
                self._obey(line)

    def end(self) -> None:
        """Close the session. Writes that are still not durable must not look like a success (C2)."""
        agent, self._agent = self._agent, None
        if agent is None:
            return
        waiting = self._run(_closed(agent))
        if waiting:
            raise Problem(f"session {self._session}: {waiting}", INTERNAL)

    def _read(self) -> str | None:
        try:
            with ending_on_sigterm():
                return input("you> " if sys.stdin.isatty() else "").strip()
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                tell()
            return None

    def _obey(self, line: str) -> None:
        try:
            if line.startswith("/"):
                self._command(*line[1:].split())
            else:
                self._say(line)
        except Problem as problem:
            complain(str(problem))

    def _command(self, name: str = "", *args: str) -> None:
        match name, args:
            case "resume", (session,):
                self._resume(session)
            case "sessions", ():
                with explained(self._setup):
                    show_sessions(self._run(_known(self._setup)))
            case "status", ():
                self._run(self._show_status())
            case "help", ():
                tell(HELP)
            case "resume", _:
                raise Problem("expected /resume ID; /sessions lists them")
            case _:
                raise Problem(f"no command /{name}{' with arguments' if args else ''}; see /help")

    def _resume(self, session: str) -> None:
        """Open the other session before closing this one: if opening fails, stay here."""
        checked_id(session)
        with explained(self._setup):
            todo = self._run(stored(self._setup, session)).unfinished
            if session != self._session:
                agent = self._run(open_session(self._setup, session, tell=self._screen.hear))
                self._leave()
                self._agent, self._session = agent, session
        assert self._agent is not None
        tell(f"session {session}, {counted(len(self._agent.conversation), 'message')}")
        self._screen.follow(self._agent.conversation)
        if todo:
            tell("[interrupted before it was answered; finishing it now]")
            self._ask(self._agent.resume)
        self._run(self._show_questions())

    def _leave(self) -> None:
        try:
            self.end()
        except Problem as problem:
            complain(str(problem))

    def _say(self, text: str) -> None:
        assert self._agent is not None
        agent = self._agent
        self._screen.catch_up(from_user=False)
        self._ask(lambda watch: agent.say(text, request_id=random_id("request"), watch=watch))

    def _ask(self, ask: Callable[..., Coroutine[Any, Any, object]]) -> None:
        """Call `ask` and show the output as it arrives."""
        try:
            self._run(ask(self._screen.watch if self._setup.config.stream else None))
        except GaveUp as error:
            self._screen.end_line()
            raise Problem(f"no answer: {error}") from None
        finally:
            self._screen.catch_up()
        self._run(self._warn_if_degraded())

    async def _warn_if_degraded(self) -> None:
        assert self._agent is not None
        status = await self._agent.status()
        if status.degraded:
            complain(not_saved(status.waiting, status.last_error))

    async def _show_status(self) -> None:
        assert self._agent is not None
        status = await self._agent.status()
        budget, model = status.budget, self._setup.provider
        limit = "no limit" if budget.limit_tokens is None else f"of {budget.limit_tokens}"
        tell(f"session    {self._session}, {counted(len(self._agent.conversation), 'message')}")
        tell(f"model      {model.model} ({model.name})")
        saved = not_saved(status.waiting, status.last_error) if status.degraded else "everything"
        tell(f"saved      {'DEGRADED: ' if status.degraded else ''}{saved}")
        tell(f"tokens     {budget.spent_tokens} spent, {limit}")
        tell(f"questions  {len(status.open_questions) or 'none'}")
        await self._show_questions()

    async def _show_questions(self) -> None:
        assert self._agent is not None
        for call in (await self._agent.status()).open_questions:
            tell(f"  ? it is unknown whether this was done: {call_shown(call.tool, call.args)}")

    # --- Ctrl-C (C3)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def interruptible() -> T:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            before = signal.getsignal(signal.SIGTERM)
            loop.add_signal_handler(signal.SIGTERM, self._leave_at_once, "terminated", TERMINATED)
            try:
                return await work
            finally:
                loop.remove_signal_handler(signal.SIGINT)
                loop.remove_signal_handler(signal.SIGTERM)
                signal.signal(signal.SIGTERM, before)
                self._setup.provider.reset()

        return self._runner.run(interruptible())

    def _interrupt(self) -> None:
        if self._setup.provider.stopped:
            self._leave_at_once("interrupted", INTERRUPTED)
        if not self._setup.provider.stop():
            tell("[waiting for a tool to finish; press Ctrl-C again to quit]")

    def _leave_at_once(self, how: str, code: int) -> NoReturn:
        """Exit as a kill would: durable state stays, and nothing else was acknowledged."""
        complain(f"{how}; to continue: {self._setup.line_to_resume(self._session)}")
        os._exit(code)


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """At the prompt nothing is in progress, so the session can be closed before the process exits."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with _repeated_until_noticed():
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _repeated_until_noticed() -> Iterator[None]:
    """`input` may have looked for signals just before SIGTERM came, and would then wait for a line first."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    main, over = threading.get_ident(), threading.Event()

    def repeat() -> None:
        while signals := os.read(reading, 16):
            while signal.SIGTERM in signals and not over.wait(NOTICED):
                signal.pthread_kill(main, signal.SIGTERM)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writing)
        thread.join()
        os.close(reading)


def not_saved(waiting: int, error: str | None) -> str:
    return f"not saved yet: {waiting} writes are waiting for the disk ({error})"


async def _closed(agent: Agent) -> str | None:
    """Close the agent. Return what could not be saved, if anything."""
    try:
        saved = await agent.catch_up()
        status = await agent.status()
    except BaseException:
        await agent.close(catch_up=False)  # otherwise the thread of its database keeps the process alive
        raise
    await agent.close()
    return None if saved else not_saved(status.waiting, status.last_error)


# --- the commands


def run(options: Namespace) -> int:
    """Run one command and return the exit code."""
    commands = {"chat": _chat, "sessions": _sessions, "show": _show, "say": _say}
    with prepared(options) as setup, asyncio.Runner() as runner:
        commands[options.command](setup, options, runner)
    return 0


def _chat(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    if sys.stdin.isatty():
        import_module("readline")  # line editing, only useful with a keyboard
    chat = Chat(setup, runner)
    try:
        chat.begin(options.resume)
        chat.loop()
    finally:
        try:
            chat.end()
        finally:
            runner.run(setup.provider.aclose())


def _sessions(setup: Setup, _options: Namespace, runner: asyncio.Runner) -> None:
    show_sessions(runner.run(_known(setup)))


async def _known(setup: Setup) -> list[tuple[str, int]]:
    return await setup.kind.read_sessions(setup.location)


def show_sessions(sessions: Sequence[tuple[str, int]]) -> None:
    for session, messages in sessions:
        tell(f"{session}  {counted(messages, 'message')}")
    if not sessions:
        tell("no sessions yet")


def _show(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    session = checked_id(options.id)
    found = runner.run(stored(setup, session))
    Screen().follow([each.message for each in found.messages])
    if found.unfinished:
        tell(f"[not answered yet: {shortened(found.unfinished[0].content)}]")
        tell(f"[to finish it: {setup.line_to_resume(session)}]")


def _say(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    session = checked_id(options.id)
    if options.new:
        setup.make_directory()
    else:
        runner.run(stored(setup, session))
    # The shell may pass bytes that are not valid text, which the store would reject.
    text = options.text.encode(errors="surrogateescape").decode(errors="replace")
    request = options.request or random_id("request")
    # There is no prompt to return to, so Ctrl-C may kill. Repeating the same request resumes it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer, waiting = runner.run(_said(setup, session, text, request))
    tell(answer)
    if waiting:
        raise Problem(waiting, INTERNAL)


async def _said(setup: Setup, session: str, text: str, request: str) -> tuple[str, str | None]:
    agent = await open_session(setup, session)
    waiting = None
    try:
        await agent.check_repeat(text, request)
        answer = await agent.say(text, request_id=request)
    except GaveUp as error:
        raise Problem(f"no answer: {error}") from None
    finally:
        waiting = await _closed(agent)
        await setup.provider.aclose()
    return answer, waiting
