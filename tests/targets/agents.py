"""Small agents, broken and sound, each for one rule by which a verdict about agents is earned."""

from __future__ import annotations

import json
import os
from pathlib import Path

K = ("kept", "docs")
EVERYTHING = {
    "resumes": K,
    "effects-kept": K,
    "effects-once": K,
    "surfaced": K,
    "same-answer": K,
    "model-once": K,
}
ACTS = {"pay": ("payments", "pay"), "mail": ("mail", "send")}
SCRIPT = (
    ("call_1", {"invoice": "A-17", "cents": 4200}),
    ("call_2", {"to": "alice", "text": "A-17 is paid"}),
    ("call_3", {"invoice": "B-3", "cents": 990}),
)
ANSWER = "Both invoices are paid, and Alice knows."


class Journal:
    """Synced lines: decisions, calls that were issued, and their results. A torn last line is cut off."""

    def __init__(self, directory):
        self.path = Path(directory) / "journal.jsonl"
        self.lines = []
        if self.path.exists():
            whole, newline, torn = self.path.read_bytes().rpartition(b"\n")
            if torn:
                os.truncate(self.path, len(whole + newline))
            self.lines = [json.loads(line) for line in whole.splitlines()]

    def add(self, **line):
        with self.path.open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(line)

    def of(self, kind):
        return [line[kind] for line in self.lines if kind in line]

    def messages(self):
        found = [{"role": "user"}]
        for line in self.lines:
            if "decided" in line:
                found.append({"role": "assistant", "calls": [line["decided"]["id"]]})
            elif "result" in line:
                found.append({"role": "tool", "call_id": line["result"]})
        return found


class Careful:
    """Repeats an interrupted payment under its key, and asks the user about an interrupted mail: sound"""

    promises = EVERYTHING

    def start(self, directory, world):
        return self.work(Journal(directory), world)

    def resume(self, directory, world):
        return self.work(Journal(directory), world)

    def work(self, journal, world):
        while not journal.of("answer"):
            pending = [call for call in journal.of("decided") if call["id"] not in journal.of("result")]
            if pending:
                self.carry_out(journal, world, pending[0])
                continue
            said = world.model(journal.messages())
            journal.add(**({"answer": said["answer"]} if "answer" in said else {"decided": said}))
        return journal.of("answer")[-1]

    def carry_out(self, journal, world, call):
        if call["id"] in journal.of("issued"):
            self.settle(world, call)
        else:
            journal.add(issued=call["id"])
            self.act(world, call)
        journal.add(result=call["id"])

    def settle(self, world, call):
        if call["tool"] == "pay":
            self.act(world, call)
        else:
            world.surface(call["id"], call["args"])

    def act(self, world, call):
        key = call["id"] if call["tool"] == "pay" else None
        world.act(*ACTS[call["tool"]], key=key, **call["args"])


class AsksTheUser(Careful):
    """Has no keys, and asks the user about every interrupted call: sound"""

    promises = EVERYTHING

    def settle(self, world, call):
        world.surface(call["id"], call["args"])

    def act(self, world, call):
        world.act(*ACTS[call["tool"]], **call["args"])


class AsksAgain(AsksTheUser):
    """Repeats its open questions whenever it starts: sound"""

    promises = EVERYTHING

    def resume(self, directory, world):
        journal = Journal(directory)
        for call in journal.of("unknown"):
            world.surface(call["id"], call["args"])
        return self.work(journal, world)

    def carry_out(self, journal, world, call):
        if call["id"] in journal.of("issued"):
            journal.add(unknown=call)
        super().carry_out(journal, world, call)


class BlamesEverything(AsksTheUser):
    """Asks the user about every call that it ever issued, whether it has the result or not"""

    promises = EVERYTHING

    def resume(self, directory, world):
        journal = Journal(directory)
        for call in journal.of("decided"):
            if call["id"] in journal.of("issued"):
                world.surface(call["id"], call["args"])
        return self.work(journal, world)


class BlamesTheLast(AsksTheUser):
    """Asks the user about the last call, whether it has the result or not"""

    promises = EVERYTHING

    def resume(self, directory, world):
        journal = Journal(directory)
        for call in journal.of("decided")[-1:]:
            if call["id"] in journal.of("issued"):
                world.surface(call["id"], call["args"])
        return self.work(journal, world)


class AsksAboutEverything(Careful):
    """After a crash it asks the user about every call it might have made, and makes none"""

    promises = {"effects-kept": K, "surfaced": K, "resumes": K}

    def resume(self, directory, world):
        journal = Journal(directory)
        if journal.of("answer"):
            return journal.of("answer")[-1]
        for call, args in SCRIPT:
            world.surface(call, args)
        return ANSWER


class AsksInAdvance(Careful):
    """Asks about every call before it makes the first one; an interrupted call is then dropped"""

    promises = {"effects-kept": K, "surfaced": K, "resumes": K}

    def start(self, directory, world):
        for call, args in SCRIPT:
            world.surface(call, args)
        return super().start(directory, world)

    def settle(self, world, call):
        pass


class NeedsRepair(Careful):
    """Sets its journal aside when the disk is full, and refuses to start until somebody looks at it"""

    promises = EVERYTHING

    def start(self, directory, world):
        if (Path(directory) / "journal.damaged").exists():
            raise RuntimeError("the journal is damaged: please repair it")
        journal = Journal(directory)
        try:
            return self.work(journal, world)
        except OSError:
            if journal.path.exists():
                journal.path.rename(journal.path.with_suffix(".damaged"))
            raise

    def resume(self, directory, world):
        return self.start(directory, world)
