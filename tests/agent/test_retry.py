"""Retries in isolation: their number, their waits, and what is recorded when (R1 to R5)."""

import asyncio

import pytest

from reference_agent.messages import Message
from reference_agent.providers.base import Answer, ModelError, TextDelta, Usage
from reference_agent.turn.retry import (
    Restarted,
    RetriesExhausted,
    RetryPolicy,
    call_with_retry,
    stream_with_retry,
)

ANSWER = Answer(Message("assistant", "two words"), Usage(3, 2))
MODES = ["complete", "stream"]


def busy(text="busy", **facts):
    return ModelError(text, retryable=True, status=429, **facts)


def refused():
    return ModelError("refused", retryable=False, status=400)


class Story:
    """A model that fails as configured; records everything that happens, in order. Time is virtual."""

    def __init__(self, *failures, shows=0):
        self.failures = list(failures)
        self.shows = shows  # deltas of a stream before it fails
        self.events = []
        self.items = []

    async def on_failure(self, turn, context, error, attempt):
        await asyncio.sleep(0)  # a row takes some time to become durable
        self.events.append(("row", turn, context, str(error), attempt))

    async def sleep(self, seconds):
        self.events.append(("sleep", float(seconds)))

    async def call(self):
        self.events.append(("call",))
        if self.failures:
            raise self.failures.pop(0)
        return ANSWER

    async def stream(self):
        self.events.append(("call",))
        failure = self.failures.pop(0) if self.failures else None
        for text in ["two ", "words"][: self.shows if failure else 2]:
            yield TextDelta(text)
        if failure:
            raise failure
        yield ANSWER

    async def _streamed(self, options):
        async for item in stream_with_retry(self.stream, **options):
            self.items.append(item)
        return self.items[-1]

    def tell(self, mode="complete", **options):
        options = {"turn": 4, "context": "llm", "on_failure": self.on_failure, "sleep": self.sleep, **options}
        asked = call_with_retry(self.call, **options) if mode == "complete" else self._streamed(options)
        return asyncio.run(asked)

    def kinds(self, kind):
        return [event for event in self.events if event[0] == kind]

    @property
    def waits(self):
        return [seconds for _, seconds in self.kinds("sleep")]

    @property
    def attempts(self):
        return [row[-1] for row in self.kinds("row")]


@pytest.mark.parametrize("mode", MODES)
def test_a_first_answer_leaves_no_trace(mode):
    story = Story()
    assert story.tell(mode) == ANSWER
    assert story.events == [("call",)]


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
def test_each_failure_is_recorded_before_the_wait_that_follows_it(mode):
    """R1, R2"""
    story = Story(busy("one"), busy("two"))
    assert story.tell(mode) == ANSWER
    assert story.events == [
        ("call",),
        ("row", 4, "llm", "one", 0),
        ("sleep", 0.5),
        ("call",),
        ("row", 4, "llm", "two", 1),
        ("sleep", 1.0),
        ("call",),
    ]


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
def test_the_last_failure_is_recorded_too_and_is_followed_by_no_wait(mode):
    """R1, R2"""
    story = Story(*(busy(str(n)) for n in range(9)))
    with pytest.raises(ModelError, match="3"):
        story.tell(mode)
    assert story.attempts == [0, 1, 2, 3]
    assert story.waits == [0.5, 1.0, 2.0]
    assert story.events[-1] == ("row", 4, "llm", "3", 3)


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
def test_a_permanent_failure_is_recorded_and_not_retried(mode):
    """R3"""
    story = Story(refused())
    with pytest.raises(ModelError, match="refused"):
        story.tell(mode)
    assert story.events == [("call",), ("row", 4, "llm", "refused", 0)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError, KeyboardInterrupt])
def test_an_error_that_is_not_the_models_passes_through(mode, error):
    """R3"""
    story = Story(error())
    with pytest.raises(error):
        story.tell(mode)
    assert story.events == [("call",)]


@pytest.mark.requirement("K5")
@pytest.mark.parametrize(("retry_after", "waits"), [(7.0, [7.0]), (0.1, [0.5]), (0.0, [0.5]), (None, [0.5])])
def test_the_longer_wait_wins(retry_after, waits):
    """R1"""
    story = Story(busy(retry_after=retry_after))
    story.tell()
    assert story.waits == waits


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("options", "wait"),
    [
        ({}, 60.0),
        ({"retry_after_limit": 5.0}, 5.0),
        ({"retry_after_limit": None}, 86_400.0),
        ({"retry_after_limit": 5.0, "base_delay_ms": 9000}, 9.0),
    ],
)
def test_retry_after_is_capped(mode, options, wait):
    """R1"""
    # BUG found by this test: the agent waited for a Retry-After of a day.
    story = Story(busy(retry_after=86_400.0))
    story.tell(mode, policy=RetryPolicy(**options))
    assert story.waits == [wait]


@pytest.mark.requirement("K5")
@pytest.mark.parametrize("mode", MODES)
def test_attempts_are_counted_across_crashes(mode):
    """R4"""
    story = Story(*(busy() for _ in range(9)))
    with pytest.raises(ModelError):
        story.tell(mode, first_attempt=2)
    assert story.attempts == [2, 3]
    assert story.waits == [2.0]


@pytest.mark.parametrize("mode", MODES)
def test_attempts_used_up_before_a_crash_are_not_made_again(mode):
    """R4"""
    story = Story()
    with pytest.raises(RetriesExhausted, match=r"numbered 0 to 3, the next would be 4"):
        story.tell(mode, first_attempt=4)
    assert story.events == []


def test_the_caller_chooses_the_number_of_attempts_and_the_base_delay():
    story = Story(*(busy() for _ in range(9)))
    with pytest.raises(ModelError):
        story.tell(policy=RetryPolicy(max_retries=1, base_delay_ms=20))
    assert (story.attempts, story.waits) == ([0, 1], [0.02])
    story = Story(busy())
    with pytest.raises(ModelError):
        story.tell(policy=RetryPolicy(max_retries=0))
    assert (story.attempts, story.waits) == ([0], [])


@pytest.mark.parametrize("mode", MODES)
def test_an_attempt_that_cannot_be_recorded_is_not_repeated(mode):
    """R2"""

    async def disk_full(*_):
        raise OSError("no space left on device")

    story = Story(busy())
    with pytest.raises(OSError, match="no space"):
        story.tell(mode, on_failure=disk_full)
    assert story.events == [("call",)]


@pytest.mark.requirement("K5")
def test_a_stream_that_fails_midway_restarts_and_says_so():
    """R5"""
    story = Story(busy(), busy(), shows=1)
    story.tell("stream")
    shown = TextDelta("two ")
    assert story.items == [shown, Restarted(), shown, Restarted(), shown, TextDelta("words"), ANSWER]


def test_a_stream_that_fails_before_any_output_restarts_silently():
    """R5"""
    story = Story(busy(), shows=0)
    story.tell("stream")
    assert Restarted() not in story.items


def test_a_stream_abandoned_early_is_closed_at_once():
    closed = []

    async def endless():
        try:
            while True:
                yield TextDelta("more")
        finally:
            closed.append(True)

    async def look_and_leave():
        story = Story()
        stream = stream_with_retry(endless, turn=1, context="llm", on_failure=story.on_failure)
        assert await anext(stream) == TextDelta("more")
        await stream.aclose()
        return list(closed), story.events

    assert asyncio.run(look_and_leave()) == ([True], [])
