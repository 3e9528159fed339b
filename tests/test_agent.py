"""The reference agent by itself, without a harness: its guarantees G1 to G7, one by one."""

import asyncio
import subprocess
import sys

import pytest

from reference_agent.agent import Agent
from reference_agent.calls import UNKNOWN_OUTCOME
from reference_agent.ids import ids_from
from reference_agent.log import DamagedLog, EventLog
from reference_agent.messages import ToolCall, idempotency_key
from reference_agent.model import ScriptedModel
from reference_agent.tools import Tool, Toolbox

SCRIPT = [{"steps": [[{"tool": "act", "args": {"n": 1}}]], "answer": "done"}]


class Died(BaseException):
    """Stands for the end of the process: no handler of the agent may catch it."""


class Acting:
    """A tool that counts what it did and can die right after doing it."""

    def __init__(self, *, die=False):
        self.done = 0
        self.die = die

    async def run(self, args, key):
        self.done += 1
        if self.die:
            raise Died
        return f"did {args['n']}"

    async def verify(self, args, key):
        return f"did {args['n']}" if self.done else None


def clock():
    return 1_700_000_000.0


async def open_agent(directory, tool, boot="1", script=SCRIPT):
    return await Agent.open(
        directory, session="s", model=ScriptedModel(script), toolbox=Toolbox([tool]),
        new_id=ids_from(boot), clock=clock,
    )  # fmt: skip


async def crash_then_resume(directory, acting, **tool):
    """A first life that dies in the middle of its tool, and a second that goes on."""
    acting.die = True
    first = await open_agent(directory, Tool(name="act", run=acting.run, mutating=True, **tool))
    with pytest.raises(Died):
        await first.say("go", request_id="r")
    await first.close()
    acting.die = False
    second = await open_agent(
        directory, Tool(name="act", run=acting.run, mutating=True, **tool), boot="2"
    )
    answer = await second.say("go", request_id="r")
    await second.close()
    return answer


@pytest.mark.requirement("C2")
@pytest.mark.parametrize(
    ("tool", "answer", "times"),
    [
        ({"repeatable": True}, "done [did 1]", 2),
        ({"verify": "verify"}, "done [did 1]", 1),
        ({}, f"done [{UNKNOWN_OUTCOME}]", 1),
    ],
)
def test_an_interrupted_call_is_settled_by_what_its_tool_can_do(tmp_path, tool, answer, times):
    """G5"""
    acting = Acting()
    tool = {name: getattr(acting, value) if name == "verify" else value
            for name, value in tool.items()}  # fmt: skip
    assert asyncio.run(crash_then_resume(tmp_path, acting, **tool)) == answer
    assert acting.done == times


def test_asking_again_repeats_the_answer_and_does_nothing(tmp_path):
    """G4"""

    async def story():
        acting = Acting()
        agent = await open_agent(tmp_path, Tool(name="act", run=acting.run, mutating=True))
        answers = [await agent.say("go", request_id="r") for _ in range(3)]
        await agent.close()
        return answers, acting.done

    assert asyncio.run(story()) == (["done [did 1]"] * 3, 1)


def test_a_tool_that_raises_is_a_result_that_the_model_sees(tmp_path):
    async def fail(args, key):
        raise ValueError("no such account")

    async def story():
        agent = await open_agent(tmp_path, Tool(name="act", run=fail, mutating=True))
        answer = await agent.say("go", request_id="r")
        await agent.close()
        return answer

    assert asyncio.run(story()) == "done [error: ValueError: no such account]"


def test_a_request_left_open_by_a_crash_is_fulfilled_before_a_new_one(tmp_path):
    """G1"""
    script = [*SCRIPT, {"steps": [], "answer": "second"}]

    async def story():
        acting = Acting(die=True)
        tool = Tool(name="act", run=acting.run, mutating=True, verify=acting.verify)
        agent = await open_agent(tmp_path, tool, script=script)
        with pytest.raises(Died):
            await agent.say("first", request_id="a")
        await agent.close()
        acting.die = False
        agent = await open_agent(tmp_path, tool, boot="2", script=script)
        answer = await agent.say("then", request_id="b")
        said = [m.content for m in await agent.messages() if m.role == "user"]
        await agent.close()
        return answer, said

    assert asyncio.run(story()) == ("second []", ["first", "then"])


def test_the_key_is_the_intent_not_the_spelling():
    call = ToolCall("1", "pay", {"to": "x", "sum": 5})
    same = ToolCall("2", "pay", {"sum": 5, "to": "x"})
    assert idempotency_key("s", call) == idempotency_key("s", same)
    others = [ToolCall("1", "pay", {"to": "x", "sum": 6}), ToolCall("1", "mail", call.args)]
    assert (
        len({idempotency_key("s", c) for c in [call, *others]} | {idempotency_key("t", call)}) == 4
    )


def test_a_torn_last_line_is_cut_off(tmp_path):
    """G6"""
    path = tmp_path / "log"
    log = EventLog(path, clock)
    log.append("a")
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq": 2, "ki')
    again = EventLog(path, clock)
    again.close()
    assert path.read_bytes() == whole
    assert [event["seq"] for event in again.events] == [1]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b'{"seq": 1}\nrubbish\n{"seq": 3}\n', "line 2: not a JSON object"),
     (b'{"seq": 1}\n{"seq": 3}\n', "line 2: expected seq 2, found 3"),
     (b'{"seq": 1}\n\x00\x00\x00\n', "line 2: not a JSON object")],
)  # fmt: skip
def test_any_other_damage_is_an_error_that_leaves_the_file_alone(tmp_path, content, complaint):
    """G6"""
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(DamagedLog, match=complaint):
        EventLog(path, clock)
    assert path.read_bytes() == content


def test_ids_are_decided_by_the_seed():
    first, again, other = ids_from("1"), ids_from("1"), ids_from("2")
    assert [first("run"), first("run")] == [again("run"), again("run")]
    assert first("run") != other("run")


def test_the_agent_is_usable_from_a_shell(tmp_path):
    def agent(*args):
        command = [sys.executable, "-m", "reference_agent.cli", *args]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    said = agent("buy milk")
    assert said.splitlines()[-1] == "assistant: noted: buy milk"
    assert agent() == said
    assert (tmp_path / ".reference-agent" / "notes.txt").read_text().count("buy milk") == 1


@pytest.mark.requirement("C6")
def test_the_agents_process_stays_light():
    code = "import sys, reference_agent.cli; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    heavy = {"click", "rich", "rich_click", "pydantic", "faker", "psutil", "chaoskit"}
    assert not heavy & set(modules)
