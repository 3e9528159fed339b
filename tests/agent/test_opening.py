"""Opening a session: locks and valid ids; and what importing the agent costs."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from reference_agent.ids import BadSessionId
from reference_agent.store.lock import SessionBusy
from tests.agent.helpers import Home, entry, play, say

# --- one process per session


HOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from reference_agent.store.lock import SessionLock
    lock = SessionLock(Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
""")


@pytest.mark.requirement("K2")
def test_a_session_open_in_another_process_is_refused_until_that_process_is_killed(tmp_path):
    home = Home(tmp_path, entry())
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "s.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(SessionBusy, match=rf"session s is open .*pid {holder.pid}\)"):
                say(home)
            assert not (tmp_path / "sessions.db").exists()  # refused before anything was changed
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    assert say(home) == ["Done. []"]


@pytest.mark.requirement("K2")
def test_two_sessions_in_one_directory_can_be_open_at_once_but_not_one_twice(tmp_path):
    one, other = Home(tmp_path, entry(), session="one"), Home(tmp_path, entry(), session="other")

    async def main():
        async with one.life() as first, other.life() as second:
            with pytest.raises(SessionBusy):
                await Home(tmp_path, entry(), session="one").open()
            return await first.say("go", request_id="r"), await second.say("go", request_id="r")

    assert play(main()) == ("Done. []", "Done. []")


# --- the cost of importing


@pytest.mark.parametrize(
    "session", ["", ".", "..", "../other", "/etc/passwd", "a/b", "a\\b", "nul\0", "a\n", "x" * 65, "\ud800"]
)
def test_an_invalid_session_id_is_refused_before_anything_is_created(tmp_path, session):
    with pytest.raises(BadSessionId, match="expected 1 to 64 letters, digits, - and _"):
        play(Home(tmp_path, session=session).open())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("session", ["a", "A-1_b", "x" * 64])
def test_a_valid_session_id_is_accepted(tmp_path, session):
    home = Home(tmp_path, entry(answer="Yes."), session=session)
    assert say(home) == ["Yes. []"]


@pytest.mark.requirement("C1")
def test_importing_the_agent_imports_only_what_it_needs():
    heavy = {"click", "rich", "rich_click", "pydantic", "faker", "psutil", "httpx2", "chaoskit"}
    imported = "reference_agent.turn.agent, reference_agent.store.sqlite_kind"
    program = f"import sys, {imported}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "aiosqlite" in loaded
    assert not loaded & heavy
