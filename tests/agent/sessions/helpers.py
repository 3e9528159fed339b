"""A directory of sessions, a clock that the test sets, and a crash at the kth persist point."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from reference_agent.ids import ids_from
from reference_agent.recovery.manager import RecoveryManager
from reference_agent.sessions.record import SessionRecord
from reference_agent.sessions.times import stamp
from reference_agent.sessions.tokens import TokenService

CREATE = {"title": "Fix", "working_dir": "/repo", "provider_type": "native", "model": "m1"}
START = 1_771_668_000.0  # 2026-02-21T10:00:00Z
TORN = b'{"seq":99,"ts":"2026-02-21T10:0'


class Death(BaseException):
    """Simulates the death of the process; enclosing `with` blocks close its files, as the kernel would."""


_listener: list[Callable[[str, str], None]] = []


def _hook(event: str, args: tuple[str, str]) -> None:
    if event == "persist.point" and _listener:
        _listener[-1](*args)


sys.addaudithook(_hook)  # an audit hook cannot be removed: installed once, then switched on and off


class Points:
    def __init__(self, deadly: int | None) -> None:
        self.deadly = deadly
        self.passed: list[tuple[str, str]] = []

    def __call__(self, name: str, when: str) -> None:
        self.passed.append((name, when))
        if len(self.passed) == self.deadly:
            raise Death


@contextmanager
def dying_at(deadly: int | None) -> Iterator[Points]:
    """`fired` says whether that point was reached; every test must check it."""
    points = Points(deadly)
    _listener.append(points)
    try:
        yield points
    finally:
        _listener.pop()


class Home:
    """Sessions in a directory. Ids and secrets are counted; a boot is a new `boot()`."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.now = START
        self.secrets = count(1)
        self.new_id = ids_from("test")

    def clock(self) -> float:
        return self.now

    def open(self, session: str = "s", create: dict[str, str] | None = CREATE) -> SessionRecord:
        return SessionRecord.open(self.path, session, clock=self.clock, create=create)

    def service(self, record: SessionRecord) -> TokenService:
        return TokenService(record, self.clock, lambda: f"secret-{next(self.secrets):040}", self.new_id)

    def manager(self, boot: str = "boot_1") -> RecoveryManager:
        return RecoveryManager(boot, self.clock)

    def start(self, record: SessionRecord, run: str = "run_1", boot: str = "boot_1") -> None:
        record.append("run.started", run_id=run, boot_id=boot, request_id="q1")

    def wait(
        self,
        record: SessionRecord,
        run: str = "run_1",
        kind: str = "approval",
        ttl: float = 600,
        deadline: float | None = None,
    ) -> str:
        """Let the run wait; the text of its token."""
        text = self.service(record).mint(run, kind, "call_1", ttl)
        deadline_at = None if deadline is None else stamp(self.now + deadline)
        record.append(
            "run.waiting",
            run_id=run,
            wait_kind=kind,
            resume_token_id=id_of(text),
            deadline_at=deadline_at,
            call_id="call_1",
        )
        return text

    def log(self, session: str = "s") -> Path:
        return self.path / f"{session}.messages.jsonl"

    def snapshot(self, session: str = "s") -> Path:
        return self.path / f"{session}.json"

    def index(self, session: str = "s") -> Path:
        return self.path / f"{session}.tokens.json"


def id_of(text: str) -> str:
    return text.partition(".")[0]


def kinds(record: SessionRecord) -> list[str]:
    return [event["kind"] for event in record.events]
