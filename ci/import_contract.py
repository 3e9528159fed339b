"""An import-linter contract: every module belongs to a room, and a room imports only the rooms on its line.

    rooms = ["chaoskit.run: chaoskit.model chaoskit.disk", ...]

A module belongs to the room with the longest matching name. The contract is broken by an import that is not
listed, a listed import that is not used, a module without a room, or a cycle of rooms.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def parse(lines: list[str]) -> dict[str, set[str]]:
    """room -> rooms that it may import"""
    return {
        room.strip(): set(allowed.split()) for room, _, allowed in (line.partition(":") for line in lines)
    }


def room_of(module: str, rooms: dict[str, set[str]]) -> str | None:
    fitting = (room for room in rooms if module == room or module.startswith(f"{room}."))
    return max(fitting, key=len, default=None)


def problems(graph: ImportGraph, rooms: dict[str, set[str]]) -> list[str]:
    found = [f"{module} is in no room" for module in sorted(graph.modules) if room_of(module, rooms) is None]
    unused = {(room, other) for room, allowed in rooms.items() for other in allowed}
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            here, there = room_of(importer, rooms), room_of(imported, rooms)
            if here is None or there is None or here == there:
                continue
            unused.discard((here, there))
            if there not in rooms[here]:
                found.append(f"{importer} imports {imported}, but {here} may not import {there}")
    found += [f"{room} may import {other}, but does not" for room, other in sorted(unused)]
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as error:
        found.append(f"a cycle of rooms: {' -> '.join(error.args[1])}")
    return found


class RoomsContract(Contract):
    rooms = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        del verbose
        found = problems(graph, parse(self.rooms))
        return ContractCheck(kept=not found, metadata={"problems": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in check.metadata["problems"]:
            output.print_error(problem)
