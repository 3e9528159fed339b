"""The scripted model in isolation: its answers depend on the script and the seed only."""

import asyncio
import json
import subprocess
import sys

import pytest

from reference_agent.messages import idempotency_key
from reference_agent.providers import ModelError
from reference_agent.providers.scripted import ScriptedProvider, failures_from
from tests.agent.helpers import HELLO, MODES, PAY, SCRIPT, after, ask


@pytest.mark.parametrize("mode", MODES)
def test_the_script_is_played_from_the_conversation_alone(mode):
    decision = ask(ScriptedProvider(SCRIPT), mode).message
    assert [(call.id, call.name) for call in decision.calls] == [
        ("call_1_0_0", "pay"),
        ("call_1_0_1", "look"),
    ]
    another_life = ScriptedProvider(SCRIPT)
    assert ask(another_life, mode, after(decision)).message.content == "Paid. [did pay; did look]"
    assert ask(another_life, mode).message == decision


def test_an_answer_costs_the_same_tokens_in_every_life():
    first, again = (ask(ScriptedProvider(SCRIPT), system="Be brief.", tools=[PAY]) for _ in "12")
    assert first == again
    assert min(first.usage.input_tokens, first.usage.output_tokens) > 0
    assert ask(ScriptedProvider(SCRIPT)).usage.input_tokens < first.usage.input_tokens


@pytest.mark.parametrize("conversation", [[], [*HELLO, *HELLO]])
def test_a_conversation_that_is_not_in_the_script_is_an_error(conversation):
    with pytest.raises(ModelError, match="expected 1 to 1 user messages") as caught:
        ask(ScriptedProvider(SCRIPT), "complete", conversation)
    assert not caught.value.retryable


@pytest.mark.parametrize("mode", MODES)
def test_a_fickle_model_makes_the_same_decision_in_different_text(mode):
    lives = [ScriptedProvider(SCRIPT, fickle=f"life {n}") for n in range(10)]
    decisions = [ask(life, mode).message for life in lives for _ in range(3)]
    assert len({call.id for d in decisions for call in d.calls}) == 60
    assert len({d.content for d in decisions}) == 30
    orders = {json.dumps({**d.calls[0].args, "memo": ""}) for d in decisions}
    assert len(orders) > 5
    for decision in decisions:
        pay, look = decision.calls
        assert pay.args.pop("memo").startswith("noise ")
        intents = [idempotency_key("s", call.name, call.args) for call in (pay, look)]
        assert intents == [
            idempotency_key("s", c.name, c.args) for c in ask(ScriptedProvider(SCRIPT)).message.calls
        ]
    answers = {ask(life, mode, after(decisions[0])).message.content for life in lives}
    assert len(answers) == 10
    assert all("Paid. [did pay; did look]" in answer for answer in answers)


def test_the_nonce_determines_what_a_fickle_model_answers():
    first, again = (ask(ScriptedProvider(SCRIPT, fickle="a")) for _ in "12")
    assert first == again


def test_failures_come_before_the_answer_of_their_turn():
    provider = ScriptedProvider(
        SCRIPT, failures=failures_from({"2": [{"status": 429, "retry_after": 2.0}, {"status": 400}]})
    )
    decision = ask(provider).message
    facts = []
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            ask(provider, "complete", after(decision))
        facts.append((caught.value.status, caught.value.retryable, caught.value.retry_after))
    assert facts == [(429, True, 2.0), (400, False, None)]
    assert ask(provider, "complete", after(decision)).message.content.startswith("Paid.")


def test_a_broken_connection_interrupts_a_stream_midway():
    provider = ScriptedProvider([{"steps": [], "answer": "a b c d"}], failures=failures_from({1: [{}]}))
    shown = []

    async def watch():
        async for item in provider.stream(HELLO, system="", tools=()):
            shown.append(item)  # noqa: PERF401 - what was shown before the error counts

    with pytest.raises(ModelError, match="the connection broke"):
        asyncio.run(watch())
    assert 0 < len(shown) < 5


def test_how_often_a_turn_was_asked_can_be_counted_outside_of_the_process():
    failures = failures_from({1: [{"status": 503}, {"status": 503}]})
    provider = ScriptedProvider(SCRIPT, failures=failures, count={1: 2}.__getitem__)
    assert ask(provider).message.calls


@pytest.mark.requirement("C6")
def test_the_scripted_model_does_not_load_an_http_client():
    code = """if True:
        import sys, reference_agent.providers.scripted, reference_agent.turn.retry
        import reference_agent.providers.openai_http
        print(*sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx2", "httpcore2", "anyio", "h11"} & set(done.stdout.split())
