"""No test runs forever: a target that hangs costs its own test, not the session."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HANGING = """
import asyncio, signal, subprocess, sys, threading, time
import pytest

def test_sleeps():
    time.sleep(60)

def test_waits_for_a_process_that_does_not_end():
    subprocess.run([sys.executable, "-c", "import signal; signal.pause()"])

def test_waits_for_a_thread():
    threading.Event().wait()

def test_waits_in_an_event_loop():
    asyncio.run(asyncio.Event().wait())

@pytest.fixture
def slow_fixture():
    time.sleep(60)

def test_waits_in_a_fixture(slow_fixture):
    pass

def test_comes_later():
    pass
"""

DEAF = """
import signal, time
import pytest

@pytest.mark.timeout(1, method="thread")
def test_blocks_the_signal():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)
"""

LIMITS = """
import pytest

@pytest.mark.{marker}
def test_with_a_marker(request):
    assert request.node.get_closest_marker("timeout").args == ({limit},)

@pytest.mark.{marker}
@pytest.mark.timeout(7)
def test_with_a_limit_of_its_own(request):
    assert request.node.get_closest_marker("timeout").args == (7,)

def test_without(request):
    assert request.node.get_closest_marker("timeout") is None
"""


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, timeout=100)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_hanging_test_fails_and_the_others_still_run(pytester, workers):
    result = run(pytester, HANGING, "-o", "timeout=1", "-o", "timeout_method=signal", "-n", workers)
    result.assert_outcomes(passed=1, failed=4, errors=1)
    assert result.stdout.str().count("Timeout (>1.0s)") >= 5


def test_a_test_that_blocks_the_signal_ends_with_its_process(pytester):
    result = run(pytester, DEAF)
    assert result.ret != 0
    assert "Timeout" in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(("marker", "limit"), [("stress", 900), ("targets", 3600)])
def test_crash_tests_have_more_time(pytester, monkeypatch, marker, limit):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest("from tests.conftest import pytest_collection_modifyitems")
    pytester.makeini("[pytest]\nmarkers = targets: x")
    result = run(pytester, LIMITS.format(marker=marker, limit=limit))
    result.assert_outcomes(passed=3)


def test_every_other_test_has_the_limit_of_the_project(pytestconfig, request):
    assert float(pytestconfig.getini("timeout")) == 120
    assert request.node.get_closest_marker("timeout") is None
