"""The daemon, with each persisted change also recorded beside its directory, in order."""

from pathlib import Path

import msgspec
from chaoskit_scenarios.agent.mutations import replace
from chaoskit_scenarios.tree.scenario import SCENARIOS

from chaoskit.model import Mutant
from reference_agent.daemon.journal import Journal


def _append(line: bytes) -> None:
    with Path("../written").open("ab") as file:
        file.write(line)


def write_down() -> None:
    sound = Journal.write

    async def write(self, change, wanted=lambda: True):
        written = await sound(self, change, wanted)
        if written:
            _append(msgspec.json.encode(change) + b"\n")
        return written

    replace(Journal, "write", write)


WRITTEN = Mutant(
    name="written", summary="no mutant: it tells", breaks="", patch="tests.stress.written:write_down"
)
SCENARIO = msgspec.structs.replace(SCENARIOS["tree"], mutants=(WRITTEN,))
