"""From options to an open session: validates the user's choices and reports every error in one line."""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
import stat
from argparse import Namespace
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeVar

import aiosqlite
import msgspec

from reference_agent.ids import BadSessionId, checked_session, random_id
from reference_agent.logs import structured as logs
from reference_agent.messages import Message
from reference_agent.providers.base import Answer, ModelError, Provider, TextDelta, ToolSpec
from reference_agent.store.backlog import NotDurable
from reference_agent.store.database import CorruptStore, NewerStore
from reference_agent.store.event_log import DamagedLog
from reference_agent.store.kinds import Location, Stored, StoreKind, WrongStore, find
from reference_agent.store.lock import SessionBusy
from reference_agent.store.records import OtherContent
from reference_agent.store.registry import DEFAULT, UnknownName
from reference_agent.terminal import config as settings
from reference_agent.terminal.notes import Notes, NoteTaker
from reference_agent.terminal.problems import (
    INTERNAL,
    WRONG_USE,
    CannotWrite,
    NoReader,
    Problem,
    with_remedy,
    wrong_path,
)
from reference_agent.turn.agent import Agent
from reference_agent.turn.cadence import Cadence
from reference_agent.turn.hooks import HookRegistry
from reference_agent.turn.opening import HeldLog
from reference_agent.turn.options import Options
from reference_agent.turn.runtime import Listener, Results, Runtime, nobody, nothing_yet
from reference_agent.turn.tools import Tool

T = TypeVar("T")
log = logs.get_logger(__name__)

TROUBLE = (SessionBusy, CorruptStore, NewerStore, WrongStore, DamagedLog)
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
LARGEST = 2**63 - 1  # what a database can store


class Interruptible:
    """A provider that can be stopped (C3).

    Only the wait for the model is cancelled, from outside, and turned into a ModelError here. The agent
    itself is never cancelled, because a write that is cancelled halfway may or may not have happened.
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
        """Whether a model call was in progress; if not, the next one fails at once."""
        self._stop.set()
        return self._waiting.cancel() if self._waiting else False

    def reset(self) -> None:
        self._stop.clear()

    async def sleep(self, seconds: float) -> None:
        """The delay between attempts. Stopping ends it early, and the next attempt then fails at once."""
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
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()

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


class Setup(msgspec.Struct, frozen=True):
    """The result of combining options and settings."""

    directory: Path
    config: settings.Config
    provider: Interruptible
    store: str  # as given: a name, or a URL
    kind: StoreKind
    again: tuple[str, ...]  # the options that a line to resume needs

    def line_to_resume(self, session: str) -> str:
        return shlex.join(["reference-agent", "chat", *self.again, "--resume", session])

    def make_directory(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise wrong_path("--state", self.directory, error) from error

    @property
    def location(self) -> Location:
        return Location(self.directory, self.store)


def agent_options(config: settings.Config) -> Options:
    """Translate the settings into the agent's options."""
    every = (config.checkpoint_every_turns, config.checkpoint_every_seconds)
    return Options(
        agent_id=config.agent_id,
        cadence=Cadence(config.cadence, *(every if config.cadence == "periodic" else ())),
        max_turns=config.max_turns,
        limit_tokens=_token_limit(config),
        max_retries=config.max_retries,
        retry_base_delay_ms=config.retry_base_delay_ms,
        retry_after_limit=config.retry_after_limit_seconds,
        tool_deadline=config.tool_timeout_seconds,
    )


def set_up(options: Namespace) -> Setup:
    config = _config(options)
    state = options.state or config.state_directory
    again = [("--state", options.state), ("--config", options.config), ("--store", options.store)]
    again += [(f"--{name}", getattr(options, name, None)) for name in ("url", "model", "cadence")]
    given = tuple(word for name, value in again if value for word in (name, value))
    store = options.store or DEFAULT
    return Setup(_directory(state), config, Interruptible(_provider(config)), store, _kind(store), given)


def _directory(state: str) -> Path:
    """Absolute, so that an error message names an unambiguous path. It need not exist yet."""
    directory = Path(state).absolute()
    try:
        is_directory = stat.S_ISDIR(directory.stat().st_mode)
    except FileNotFoundError:
        return directory
    except OSError as error:
        raise wrong_path("--state", directory, error) from error
    if not is_directory:
        raise Problem(f"--state {directory}: expected a directory, found a file", WRONG_USE)
    return directory


def _kind(store: str) -> StoreKind:
    try:
        return find(store)
    except UnknownName as error:
        raise Problem(f"--store: {error}", WRONG_USE) from None
    except ImportError as error:
        raise Problem(f"--store {store} needs a package that is not installed: {error.name}") from None


def _config(options: Namespace) -> settings.Config:
    """The settings of the file, overridden by the options."""
    try:
        config = settings.load(Path(options.config)) if options.config else settings.Config()
        changes = {
            key: value
            for key, option in (
                ("provider_url", "url"),
                ("model", "model"),
                ("stream", "stream"),
                ("cadence", "cadence"),
            )
            if (value := getattr(options, option, None)) is not None
        }
        config = msgspec.structs.replace(config, **changes)
    except settings.BadConfig as error:
        raise Problem(str(error), WRONG_USE) from None
    return config


def _provider(config: settings.Config) -> Provider:
    if config.provider_url is None:
        if config.model != settings.Config().model:
            raise Problem(f"--model {config.model} needs --url: the service to ask", WRONG_USE)
        return NoteTaker()
    if config.model == settings.Config().model:
        raise Problem("--url needs --model: the model to use", WRONG_USE)
    try:
        import_module("httpx2")  # the provider imports it on its first call
        http = import_module("reference_agent.providers.openai_http")
    except ImportError as error:
        raise Problem(f"--url needs a package that is not installed: {error.name}") from None
    silence = config.model_timeout_seconds
    try:
        provider: Provider = http.OpenAIProvider(
            base_url=config.provider_url,
            model=config.model,
            api_key=os.environ.get(config.provider_key_variable) or None,
            timeouts=http.Timeouts(silence=silence) if silence else http.Timeouts(),
        )
    except ValueError as error:
        raise Problem(f"--url: {error}", WRONG_USE) from None
    return provider


def log_to(stack: ExitStack, path: str | None, config: settings.Config) -> None:
    if path is None:
        return
    try:
        file = Path(path).open("a", encoding="ascii", buffering=1)  # noqa: SIM115 - the stack closes it
    except OSError as error:
        raise wrong_path("--log", path, error) from error
    stack.callback(_closed, file)
    names = config.log_secret_names
    stack.enter_context(logs.written_to(file, level=config.log_level, secret_names=names))


def _closed(file: IO[str]) -> None:
    """Lines that could not be written were counted when they were lost; they fail nothing (L4)."""
    with suppress(OSError):
        file.close()


def _token_limit(config: settings.Config) -> int | None:
    """Convert money to tokens at the higher price: this may stop early but never overspends."""
    limits = [config.budget_tokens] if config.budget_tokens is not None else []
    if config.budget_usd is not None:
        price = max(config.usd_per_million_input_tokens, config.usd_per_million_output_tokens)
        limits.append(int(min(config.budget_usd / price * 1_000_000, LARGEST)))
    return min(limits, default=None)


def checked_id(session: str) -> str:
    """Validate a session id before it is used in a path."""
    try:
        return checked_session(session)
    except BadSessionId as error:
        raise Problem(str(error), WRONG_USE) from None


async def stored(setup: Setup, session: str) -> Stored:
    """A session as stored; a Problem if it does not exist."""
    found = await setup.kind.read_session(setup.location, session)
    if found is None:
        raise Problem(f"no session {session} in {setup.directory} (store {setup.store})", WRONG_USE)
    return found


async def open_session(
    setup: Setup,
    session: str,
    *,
    tell: Listener = nobody,
    tools: Sequence[Tool] = (),
    results: Results = nothing_yet,
    held: HeldLog | None = None,
) -> Agent:
    """Open and recover the agent. On failure close all connections: their threads would outlive us."""
    opened: list[aiosqlite.Connection] = []

    def connect(*args: Any, **options: Any) -> aiosqlite.Connection:
        opened.append(aiosqlite.connect(*args, **options))
        return opened[-1]

    notes = Notes()
    limit = setup.config.hook_timeout_seconds
    try:
        agent = await Agent.open(
            Location(setup.directory, setup.store, connect),
            session=session,
            provider=setup.provider,
            toolbox=notes.tools(*tools),
            runtime=Runtime(
                new_id=random_id,
                sleep=setup.provider.sleep,
                tell=tell,
                results=results,
                hooks=HookRegistry(time_limit=lambda: asyncio.timeout(limit)),
            ),
            options=agent_options(setup.config),
            held=held,
        )
        notes.directory = await agent.scratchpad()
    except BaseException:
        for connection in opened:
            await connection.close()
        raise
    return agent


@contextmanager
def prepared(options: Namespace) -> Iterator[Setup]:
    """The settings and the log of a command. Its errors are Problems; the log has the details of a bug."""
    with ExitStack() as stack:
        setup = set_up(options)
        log_to(stack, options.log, setup.config)
        try:
            with explained(setup):
                yield setup
        except (Problem, NoReader, CannotWrite):
            raise
        except Exception:
            log.exception("command.failed", command=options.command)
            raise


@contextmanager
def explained(setup: Setup) -> Iterator[None]:
    """Turn known errors into a Problem (C4)."""
    try:
        yield
    except sqlite3.Error as error:
        place = setup.directory / (setup.kind.database or "")
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY:
            raise Problem(f"{place}: {error}: another process is using it") from error
        raise Problem(
            f"{place}: {error}: check that there is space and that it is writable", INTERNAL
        ) from error
    except OtherContent as error:
        raise Problem(str(error), WRONG_USE) from error
    except NotDurable as error:
        raise Problem(f"{error}: the request can be repeated once the disk works again", INTERNAL) from error
    except TROUBLE as error:
        raise Problem(str(error)) from error
    except OSError as error:
        raise Problem(with_remedy(error, str(setup.directory)), INTERNAL) from error
