"""The chat: one session of the agent, a person in front of it, and whatever may go wrong told in a line.

    Chat ── lines ──> Agent ──> Interruptible(provider) ──> NoteTaker | any OpenAI-compatible service
      ^                 │
      └── Screen <──────┘  words as they come, tool calls and results as they are done

Promises, cited as C1... from the tests:

C1  What was said before a crash is shown again after it, and what was asked is finished first.
C2  A prompt that comes back means that the answer above it is durable; if it is not, a line says so.
C3  Ctrl-C ends the wait for the model, and with it this request: it is on record as given up. A tool
    that runs is not torn away from its work; a second Ctrl-C ends the process, as a kill would, which
    loses nothing: the request is finished by the next resume.
C4  Trouble is one line that says what and where. The chat goes on where it can.

The loop is synchronous and enters asyncio once per request: in between, `input` waits as it does in any
program, with its line editing, and Ctrl-C at the prompt means what it always means.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shlex
import signal
import sqlite3
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import aiosqlite
import msgspec

from reference_agent import config as settings, logs
from reference_agent.agent import Agent, GaveUp, Options
from reference_agent.cadence import Cadence
from reference_agent.hooks import HookRegistry
from reference_agent.ids import system_clock
from reference_agent.lock import SessionBusy
from reference_agent.log import DamagedLog
from reference_agent.messages import Message, ToolCall
from reference_agent.points import persisting
from reference_agent.providers.base import (
    Answer,
    ModelError,
    Provider,
    TextDelta,
    ToolSpec,
    Usage,
    estimated_tokens,
)
from reference_agent.retry import Restarted
from reference_agent.store import SessionStore
from reference_agent.store.database import CorruptStore, NewerStore
from reference_agent.store.sqlite import Request
from reference_agent.tools import Args, Tool, Toolbox

T = TypeVar("T")
log = logs.get_logger(__name__)

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it becomes a file name
LONGEST_SHOWN = 2000  # characters of one message; a tool may return a megabyte
# What a terminal would obey instead of showing it: escape sequences of a model stay text.
CONTROLS = {n: "\ufffd" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}
TROUBLE = (SessionBusy, CorruptStore, NewerStore, DamagedLog, sqlite3.Error, OSError)

HELP = """\
/resume ID   go on with another session: its conversation, then what a crash left undone
/sessions    the sessions of this state directory
/status      whether all is saved, tokens spent, open questions
/help        this
/quit        end (so does the end of input); Ctrl-C ends the wait for an answer
Anything else is said to the agent."""


class Problem(Exception):
    """One line for the user, and the exit code if nothing can go on."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


# --- the model that needs no provider


class NoteTaker:
    """A model in this process. It has each message noted down, and confirms what came of it."""

    name = "local"
    model = "note-taker"
    LIST = re.compile(r"((list|show)( me)?( my| the| all)* )?notes\W*", re.IGNORECASE)

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        del tools  # it knows its two
        message = self._reply(conversation[-1])
        asked = estimated_tokens(system, *(each.content for each in conversation))
        return Answer(message, Usage(asked, estimated_tokens(message.content) + len(message.calls)))

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        answer = await self.complete(conversation, system=system, tools=tools)
        for word in re.findall(r"\S+\s*|\s+", answer.message.content):
            yield TextDelta(word)
        yield answer

    def _reply(self, last: Message) -> Message:
        if last.role == "tool":
            return Message("assistant", self._confirmation(last))
        wanted = (
            ("notes", {}) if self.LIST.fullmatch(last.content) else ("note", {"text": last.content})
        )
        # Random, as any real model's are: after a rollback, a counted id could be one of the past.
        return Message("assistant", "", (ToolCall(new_id("call"), *wanted),))

    def _confirmation(self, result: Message) -> str:
        if result.is_error:
            return f"That did not work: {result.content}"
        if result.tool == "notes":
            return f"Your notes:\n{result.content}" if result.content else "There are no notes yet."
        return f"I have written that down ({result.content})."


class Notes:
    """`notes.txt` in the session's scratchpad: a line is an idempotency key, a tab, a text in JSON.

    A crash can leave one unfinished last line, which was never confirmed: it is cut off by the next
    note, and counts for nothing until then.
    """

    directory = Path()  # known once the session is open; no tool runs before

    def tools(self) -> Toolbox:
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        note = Tool(
            name="note", description="Write a note down.", parameters=text, mutating=True,
            run=self.note, verify=self.verify, key=lambda _args, call_id: call_id,  # twice is twice
        )  # fmt: skip
        nothing = {"type": "object", "properties": {}}
        notes = Tool(
            name="notes", description="List all notes.", parameters=nothing, run=self.listed
        )
        return Toolbox([note, notes])

    async def note(self, args: Args, key: str) -> str:
        text = args.get("text")
        if not isinstance(text, str):
            raise TypeError(f"text: expected a text, found {json.dumps(text)}")
        with persisting("note.append"):
            self._append(f"{key}\t{json.dumps(text)}\n".encode())
        return self._number(key) or "written, and gone since"

    async def verify(self, _args: Args, key: str) -> str | None:
        return self._number(key)

    async def listed(self, _args: Args, _key: str) -> str:
        texts = [json.loads(line.partition("\t")[2]) for line in self._lines()]
        return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))

    def _number(self, key: str) -> str | None:
        keys = [line.partition("\t")[0] for line in self._lines()]
        return f"note {keys.index(key) + 1}" if key in keys else None

    def _lines(self) -> list[str]:
        path = self.directory / "notes.txt"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def _append(self, line: bytes) -> None:
        path = self.directory / "notes.txt"
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        for directory in (self.directory, self.directory.parent):  # both may be new
            _sync(directory)


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Interruptible:
    """A provider that can be told to stop (C3).

    Only the wait for the model is cancelled, from outside, and turned into a ModelError here: the agent
    itself is never cancelled, because a write that is torn away in the middle may have happened or not.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.name = provider.name
        self.model = provider.model
        self._stop = asyncio.Event()
        self._waiting: asyncio.Task[Any] | None = None

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> bool:
        """Whether somebody was waiting for the model; if not, the next call will fail at once."""
        self._stop.set()
        return self._waiting.cancel() if self._waiting else False

    def reset(self) -> None:
        self._stop.clear()

    async def sleep(self, seconds: float) -> None:
        """Between two attempts. It ends early when stopped, and the next attempt then fails at once."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    async def complete(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> Answer:
        with self._stoppable():
            return await self._provider.complete(conversation, system=system, tools=tools)

    async def stream(
        self, conversation: Sequence[Message], *, system: str, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[TextDelta | Answer]:
        stream = self._provider.stream(conversation, system=system, tools=tools)
        with self._stoppable():
            try:
                async for item in stream:
                    yield item
            finally:
                await stream.aclose()  # type: ignore[attr-defined] # every provider's is a generator

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        interrupted = ModelError("interrupted", retryable=False)
        if self.stopped:
            raise interrupted
        task = self._waiting = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if not self.stopped or task is None:
                raise
            task.uncancel()
            raise interrupted from None
        finally:
            self._waiting = None

    async def aclose(self) -> None:
        close = getattr(self._provider, "aclose", None)
        if close:
            await close()


# --- what the user sees


def plain(text: str) -> str:
    return text.translate(CONTROLS)


def complain(text: str) -> None:
    """One line on stderr, after what was said on stdout."""
    with suppress(OSError):
        sys.stdout.flush()
    line = " ".join(plain(text).split("\n"))
    sys.stderr.write(f"reference-agent: {line}\n")
    sys.stderr.flush()


def tell(text: str = "", end: str = "\n") -> None:
    sys.stdout.write(plain(text) + end)
    sys.stdout.flush()


def call_shown(tool: str, args: Args) -> str:
    return shortened(f"{tool}({json.dumps(args, ensure_ascii=False)})")


def shortened(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return text if more <= 0 else f"{text[:LONGEST_SHOWN]}... ({more} more characters)"


def rendered(message: Message) -> Iterator[str]:
    """A message as lines to read."""
    if message.role == "tool":
        mark = "!" if message.is_error else "="
        yield f"    {mark} " + shortened(message.content).replace("\n", "\n      ")
        return
    who = "you" if message.role == "user" else "agent"
    if message.content:
        yield f"{who}: {shortened(message.content)}"
    for call in message.calls:
        yield f"  * {call_shown(call.name, call.args)}"


class Screen:
    """Shows a conversation as it grows: streamed words at once, everything else when it is there.

    It is told of words (`watch`) and that something has happened (`hear`), and compares what it has
    shown with the agent's conversation. Words that were streamed are not shown a second time.
    """

    def __init__(self) -> None:
        self._conversation: Sequence[Message] = ()
        self._shown = 0
        self._streamed = ""
        self._from_user = (
            False  # whether the user's own messages are shown: not what was just typed
        )

    def follow(self, conversation: Sequence[Message]) -> None:
        """Show another conversation, whole."""
        self._conversation, self._shown = conversation, 0
        self.catch_up(from_user=True)

    def watch(self, item: TextDelta | Restarted) -> None:
        if isinstance(item, Restarted):
            self.end_line()
            tell("[the answer was cut off; it begins again]")
            return
        if not self._streamed:
            self.catch_up()
            tell("agent: ", end="")
        self._streamed += item.text
        tell(item.text, end="")

    def hear(self, what: str, _facts: dict[str, Any]) -> None:
        if what in ("turn", "answer"):
            self.catch_up()

    def catch_up(self, *, from_user: bool | None = None) -> None:
        if from_user is not None:
            self._from_user = from_user
        while self._shown < len(self._conversation):
            message = self._conversation[self._shown]
            self._shown += 1
            self._show(message)

    def _show(self, message: Message) -> None:
        if message.role == "assistant" and self._streamed:
            self.end_line()
            message = Message("assistant", "", message.calls)
        if message.role != "user" or self._from_user:
            for line in rendered(message):
                tell(line)

    def end_line(self) -> None:
        if self._streamed:
            tell()
        self._streamed = ""


# --- from options to an open session


class Setup(msgspec.Struct, frozen=True):
    """What the options and the settings come to."""

    directory: Path
    config: settings.Config
    provider: Interruptible
    again: tuple[str, ...]  # the options that a line to resume needs

    def line_to_resume(self, session: str) -> str:
        return shlex.join(["reference-agent", "chat", *self.again, "--resume", session])

    def agent_options(self) -> Options:
        config = self.config
        every = (config.checkpoint_every_turns, config.checkpoint_every_seconds)
        return Options(
            cadence=Cadence(config.cadence, *(every if config.cadence == "periodic" else ())),
            max_turns=config.max_turns, limit_tokens=_token_limit(config),
            max_retries=config.max_retries, retry_base_delay_ms=config.retry_base_delay_ms,
            tool_deadline=config.tool_timeout_seconds,
        )  # fmt: skip


def set_up(options: Namespace) -> Setup:
    config = _config(options)
    state = options.state or config.state_directory
    again = [("--state", options.state), ("--config", options.config)]
    again += [(f"--{name}", getattr(options, name, None)) for name in ("url", "model", "cadence")]
    given = tuple(word for name, value in again if value for word in (name, value))
    # Absolute, because the session remembers its scratchpad and may be resumed from elsewhere.
    return Setup(Path(state).absolute(), config, Interruptible(_provider(config)), given)


def _config(options: Namespace) -> settings.Config:
    """The settings of the file, and what the options put in their place."""
    try:
        config = settings.load(Path(options.config)) if options.config else settings.Config()
        changes = {
            key: value
            for key, option in (("provider_url", "url"), ("model", "model"),
                                ("stream", "stream"), ("cadence", "cadence"))
            if (value := getattr(options, option, None)) is not None
        }  # fmt: skip
        config = msgspec.structs.replace(config, **changes)
    except settings.BadConfig as error:
        raise Problem(str(error), WRONG_USE) from None
    if config.database is not None:
        raise Problem(
            "database: the chat keeps its sessions in sessions.db of the state directory;"
            " remove this setting, or use --state",
            WRONG_USE,
        )
    return config


def _provider(config: settings.Config) -> Provider:
    if config.provider_url is None:
        if config.model != settings.Config().model:
            raise Problem(f"--model {config.model} needs --url: whom to ask for it", WRONG_USE)
        return NoteTaker()
    if config.model == settings.Config().model:
        raise Problem("--url needs --model: which model to ask for", WRONG_USE)
    try:
        import httpx2  # noqa: F401, PLC0415 - only who talks over HTTP pays for it

        from reference_agent.providers.openai_http import OpenAIProvider, Timeouts  # noqa: PLC0415
    except ImportError as error:
        raise Problem(f"--url needs a package that is not installed: {error.name}") from None
    silence = config.model_timeout_seconds
    try:
        return OpenAIProvider(
            base_url=config.provider_url, model=config.model,
            api_key=os.environ.get(config.provider_key_variable) or None,
            timeouts=Timeouts(silence=silence) if silence else Timeouts(),
        )  # fmt: skip
    except ValueError as error:
        raise Problem(f"--url: {error}", WRONG_USE) from None


def _token_limit(config: settings.Config) -> int | None:
    """Money is turned into tokens at the dearer price: it can end early, and never overspends."""
    limits = [config.budget_tokens] if config.budget_tokens is not None else []
    if config.budget_usd is not None:
        price = max(config.usd_per_million_input_tokens, config.usd_per_million_output_tokens)
        limits.append(int(config.budget_usd / price * 1_000_000))
    return min(limits, default=None)


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(6)}"


def checked_id(session: str) -> str:
    if not SESSION_ID.fullmatch(session):
        raise Problem(
            f"session id: expected 1 to 64 letters, digits, - and _, found {session[:80]!r}",
            WRONG_USE,
        )
    return session


@asynccontextmanager
async def reading(directory: Path, session: str) -> AsyncIterator[SessionStore | None]:
    """The store beside any agent that has it open; None when nothing was ever stored here."""
    path = directory / "sessions.db"
    if not path.exists():
        yield None
        return
    store = await SessionStore.open(path, session, "agent", system_clock)
    try:
        yield store
    finally:
        await store.close()


async def known_sessions(directory: Path) -> list[tuple[str, int]]:
    async with reading(directory, "") as store:
        return await store.sessions() if store else []


async def unfinished(directory: Path, session: str) -> list[Request]:
    """What waits to be done in a session; a Problem if there is no such session."""
    async with reading(directory, session) as store:
        if store is None or session not in dict(await store.sessions()):
            raise Problem(f"there is no session {session} in {directory}")
        return await store.unfinished_requests()


async def open_session(setup: Setup, session: str, screen: Screen | None = None) -> Agent:
    """The agent, recovered. If that fails no connection stays open: its thread would outlive us."""
    opened: list[aiosqlite.Connection] = []

    def connect(*args: Any, **options: Any) -> aiosqlite.Connection:
        opened.append(aiosqlite.connect(*args, **options))
        return opened[-1]

    notes = Notes()
    limit = setup.config.hook_timeout_seconds
    try:
        agent = await Agent.open(
            setup.directory, session=session, provider=setup.provider, toolbox=notes.tools(),
            new_id=new_id, sleep=setup.provider.sleep, connect=connect,
            tell=screen.hear if screen else lambda _what, _facts: None,
            registry=HookRegistry(time_limit=lambda: asyncio.timeout(limit)),
            options=setup.agent_options(), agent_id=setup.config.agent_id,
        )  # fmt: skip
        notes.directory = await agent.scratchpad()
    except BaseException:
        for connection in opened:
            await connection.close()
        raise
    return agent


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Trouble that is known, as a Problem (C4)."""
    try:
        yield
    except BrokenPipeError:
        raise
    except sqlite3.Error as error:
        raise Problem(f"{directory / 'sessions.db'}: {error}") from error
    except TROUBLE as error:
        raise Problem(str(error)) from error


# --- the chat


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
        with explained(self._setup.directory):
            self._setup.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._agent = self._run(open_session(self._setup, session, self._screen))
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
        """What is not durable by now is not: this must not look like a success (C2)."""
        agent, self._agent = self._agent, None
        if agent is None:
            return
        waiting = self._run(_closed(agent))
        if waiting:
            raise Problem(f"session {self._session}: {waiting}")

    def _read(self) -> str | None:
        try:
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
                with explained(self._setup.directory):
                    show_sessions(self._run(known_sessions(self._setup.directory)))
            case "status", ():
                self._run(self._show_status())
            case "help", ():
                tell(HELP)
            case "resume", _:
                raise Problem("expected /resume ID; /sessions lists them")
            case _:
                raise Problem(
                    f"there is no command /{name}{' like this' if args else ''}; see /help"
                )

    def _resume(self, session: str) -> None:
        """The other session is opened before this one is closed: if it cannot be, we stay here."""
        checked_id(session)
        with explained(self._setup.directory):
            todo = self._run(unfinished(self._setup.directory, session))
            if session != self._session:
                agent = self._run(open_session(self._setup, session, self._screen))
                self._leave()
                self._agent, self._session = agent, session
        assert self._agent is not None
        tell(f"session {session}, {len(self._agent.conversation)} messages")
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
        self._ask(lambda watch: agent.say(text, request_id=new_id("request"), watch=watch))

    def _ask(self, ask: Callable[..., Coroutine[Any, Any, object]]) -> None:
        """`ask` the agent, and show what comes."""
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
        tell(f"session    {self._session}, {len(self._agent.conversation)} messages")
        tell(f"model      {model.model} ({model.name})")
        saved = not_saved(status.waiting, status.last_error) if status.degraded else "everything"
        tell(f"saved      {'DEGRADED: ' if status.degraded else ''}{saved}")
        tell(f"tokens     {budget.spent_tokens} spent, {limit}")
        tell(f"questions  {len(status.open_questions) or 'none'}")
        await self._show_questions()

    async def _show_questions(self) -> None:
        assert self._agent is not None
        for call in (await self._agent.status()).open_questions:
            tell(f"  ? nobody knows whether this was done: {call_shown(call.tool, call.args)}")

    # --- Ctrl-C (C3)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def interruptible() -> T:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            try:
                return await work
            finally:
                loop.remove_signal_handler(signal.SIGINT)
                self._setup.provider.reset()

        return self._runner.run(interruptible())

    def _interrupt(self) -> None:
        if self._setup.provider.stopped:
            self._leave_at_once()
        if not self._setup.provider.stop():
            tell("[a tool is at work, and will be waited for; Ctrl-C again ends the program]")

    def _leave_at_once(self) -> NoReturn:
        """As a kill would: what is durable stays, and the rest was never claimed."""
        complain(f"interrupted; to go on: {self._setup.line_to_resume(self._session)}")
        os._exit(INTERRUPTED)


def not_saved(waiting: int, error: str | None) -> str:
    return f"not saved yet: {waiting} writes wait for the disk ({error})"


async def _closed(agent: Agent) -> str | None:
    """Close the agent; what could not be saved, if anything."""
    saved = await agent.catch_up()
    status = await agent.status()
    await agent.close()
    return None if saved else not_saved(status.waiting, status.last_error)


# --- the commands


def run(options: Namespace) -> int:
    """One command; the answer is the exit code."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr] # bytes from anywhere
    commands = {"chat": _chat, "sessions": _sessions, "show": _show, "say": _say}
    try:
        with ExitStack() as stack:
            setup = set_up(options)
            if options.log:
                _log_to(stack, options.log, setup.config)
            runner = stack.enter_context(asyncio.Runner())
            with explained(setup.directory):
                commands[options.command](setup, options, runner)
    except Problem as problem:
        complain(str(problem))
        return problem.code
    except BrokenPipeError:
        raise
    except Exception as error:  # C4: a bug is told in a line too; the log has it all
        log.exception("chat.failed")
        complain(f"internal error: {type(error).__name__}: {error} (--log FILE has the details)")
        return FAILED
    return 0


def _log_to(stack: ExitStack, path: str, config: settings.Config) -> None:
    try:
        file = Path(path).open("a", encoding="ascii", buffering=1)  # noqa: SIM115 - the stack closes it
    except OSError as error:
        raise Problem(f"--log {path}: {error.strerror}") from None
    stack.enter_context(file)
    names = config.log_secret_names
    stack.enter_context(logs.written_to(file, level=config.log_level, secret_names=names))


def _chat(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    if sys.stdin.isatty():
        import readline  # noqa: F401, PLC0415 - line editing, for those who have a keyboard
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
    show_sessions(runner.run(known_sessions(setup.directory)))


def show_sessions(sessions: Sequence[tuple[str, int]]) -> None:
    for session, messages in sessions:
        tell(f"{session}  {messages} messages")
    if not sessions:
        tell("no sessions yet")


def _show(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    session = checked_id(options.id)
    todo = runner.run(unfinished(setup.directory, session))
    Screen().follow(runner.run(_stored(setup.directory, session)))
    if todo:
        tell(f"[not answered yet: {shortened(todo[0].content)}]")
        tell(f"[to finish it: {setup.line_to_resume(session)}]")


async def _stored(directory: Path, session: str) -> list[Message]:
    async with reading(directory, session) as store:
        return [each.message for each in await store.messages()] if store else []


def _say(setup: Setup, options: Namespace, runner: asyncio.Runner) -> None:
    session = checked_id(options.id)
    if options.new:
        setup.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    else:
        runner.run(unfinished(setup.directory, session))
    # What the shell passed may be no text at all; the store takes nothing else.
    text = options.text.encode(errors="surrogateescape").decode(errors="replace")
    request = options.request or new_id("request")
    # Nobody waits at a prompt: Ctrl-C may as well kill. The same request again goes on from there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer, waiting = runner.run(_said(setup, session, text, request))
    tell(answer)
    if waiting:
        raise Problem(waiting)


async def _said(setup: Setup, session: str, text: str, request: str) -> tuple[str, str | None]:
    agent = await open_session(setup, session)
    waiting = None
    try:
        answer = await agent.say(text, request_id=request)
    except GaveUp as error:
        raise Problem(f"no answer: {error}") from None
    finally:
        waiting = await _closed(agent)
        await setup.provider.aclose()
    return answer, waiting
