"""Compares generated programs on a real file system with the model, for a time; used by ci/real-disk."""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, given, seed as with_seed, settings

from tests.disk.programs import INITIAL, PROGRAMS, do, initial_sizes
from tests.realdisk import libraries, ways, whole_stores
from tests.realdisk.compare import (
    Comparison,
    Plan,
    Program,
    compare,
    perform,
    random_plan,
    telling_plans,
    words,
)
from tests.realdisk.device import FILE_SYSTEMS, Workshop, missing
from tests.realdisk.sequences import INITIAL as FILES, SEQUENCES

PLANS = 6  # per generated program
REPORTED = 50  # a line of progress after this many programs, where there is no terminal
END = "\r" if sys.stderr.isatty() else "\n"
SOUND = 60  # ... and more, until every generated state was observed


def generated_programs(seed: int, count: int) -> list[list[tuple]]:  # type: ignore[type-arg]
    drawn: list[list[tuple]] = []  # type: ignore[type-arg]

    @with_seed(seed)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(PROGRAMS)
    def draw(steps: list[tuple]) -> None:  # type: ignore[type-arg]
        drawn.append(steps)

    if count:
        draw()
    return drawn


def program_of(steps: list[tuple]) -> Program:  # type: ignore[type-arg]
    def program(disk):
        sizes = initial_sizes()
        for count, step in enumerate(one_kind_of_writes(steps)):
            do(disk, sizes, step, bytes([ord("0") + count]))

    return program


def one_kind_of_writes(steps: list[tuple]) -> Iterator[tuple]:  # type: ignore[type-arg]
    """The writes to one file are all durable (O_DSYNC), or none is. What a durable write leaves of the plain
    ones before it depends on the size of the folios in the page cache."""
    durable: dict[str, bool] = {}
    for step in steps:
        if step[0] == "write":
            *rest, flag = step
            yield (*rest, durable.setdefault(step[1], flag))
        else:
            yield step


def report(name: str, found: Comparison, *, verbose: bool) -> int:
    """Prints what the model does not explain; returns how many states that is."""
    unexplained = list(found.unexplained())
    unreached = list(found.unreached())
    if unexplained or verbose:
        counts = f"{len(unexplained)} unexplained, {len(unreached)} not reached"
        print(f"{name}: {len(found.trace.ops)} operations, {found.disks} disks, {counts}", flush=True)
    for at, state, how in unexplained:
        print(f"  after {at}: observed, impossible in the model: {words(state)}   [{how}]")
    if verbose:
        for at, state in unreached:
            print(f"  after {at}: generated, not observed: {words(state)}")
    return len(unexplained)


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/real-disk", description=__doc__)
    parser.add_argument("--file-system", choices=sorted(FILE_SYSTEMS), default="ext4")
    parser.add_argument("--programs", type=int, default=20, help="how many generated programs")
    parser.add_argument("--seconds", type=float, default=600, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sequence", action="append", choices=sorted(SEQUENCES), help="only these sequences")
    parser.add_argument("--plans", type=int, default=PLANS, help="hidden commits and writebacks per program")
    parser.add_argument("--sound", action="store_true", help="go on until every generated state was observed")
    parser.add_argument("--only-programs", action="store_true", help="no sequences")
    parser.add_argument(
        "--program", type=int, action="append", help="only this one of the generated programs; no sequences"
    )
    parser.add_argument("--ways", type=Path, help="measure how programs save files, and add it to this file")
    parser.add_argument("--stores", type=Path, help="compare whole stores, and add the counts to this file")
    parser.add_argument(
        "--store", action="append", choices=whole_stores.STORES, help="with --stores: only these"
    )
    parser.add_argument(
        "--target", action="append", help="save with this target of the scoreboard, and see what is left"
    )
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    system = FILE_SYSTEMS[options.file_system]
    reason = missing(system)
    if reason:
        print(f"not compared with a real {system.name}: {reason}")
        return 3
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        if options.stores:
            return _stores(Path(home), options)
        if options.target:
            _libraries(Path(home), options)
            return 0
        if options.ways:
            _ways(Path(home), options)
            return 0
        wrong = 0 if options.only_programs or options.program else _sequences(Path(home), options, end)
        if not options.sequence:
            wrong += _programs(Path(home), options, end)
    print(f"{wrong} states of a real {system.name} are impossible in the model")
    return 1 if wrong else 0


def _libraries(home: Path, options: argparse.Namespace) -> None:
    shop = Workshop(home, FILE_SYSTEMS[options.file_system], {})
    for target in options.target:
        found = dict(sorted(libraries.on_a_real_disk(shop, target).items()))
        print(f"{options.file_system} {target}: {found}", flush=True)


def _ways(home: Path, options: argparse.Namespace) -> None:
    shop = Workshop(home, FILE_SYSTEMS[options.file_system], ways.INITIAL)
    rows: dict[str, object] = {}
    for name, way in ways.WAYS.items():
        rows[name] = msgspec.to_builtins(ways.measure(shop, options.file_system, way))
        print(f"{options.file_system}: {way.title}: {rows[name]}", flush=True)
    titles = {name: way.title for name, way in ways.WAYS.items()}
    _save(options.ways, {"ways": titles}, "systems", options.file_system, rows)


def _save(place: Path, more: dict[str, object], part: str, system: str, rows: dict[str, object]) -> None:
    known = json.loads(place.read_text()) if place.exists() else {}
    known |= {"kernel": platform.release().partition("-")[0], **more}
    known.setdefault(part, {}).setdefault(system, {}).update(rows)
    place.write_text(json.dumps(known, indent=1) + "\n")


def _stores(home: Path, options: argparse.Namespace) -> int:
    shop, wrong = Workshop(home, FILE_SYSTEMS[options.file_system], {}), 0
    rows: dict[str, object] = {}
    for name in options.store or whole_stores.STORES:
        store = whole_stores.STORES[name]
        real = dict(sorted(whole_stores.on_a_real_disk(shop, store).items()))
        model = dict(sorted(whole_stores.in_the_model(store, options.file_system, home / name).items()))
        rows[name] = {"real": real, "model": model}
        wrong += not real.keys() <= model.keys()
        print(f"{options.file_system} {name}: real {real}, model {model}", flush=True)
    print(f"{wrong} of {len(rows)} stores do on a real {options.file_system} what the model excludes")
    _save(options.stores, {}, "stores", options.file_system, rows)
    return 1 if wrong else 0


def _sequences(home: Path, options: argparse.Namespace, end: float) -> int:
    shop, wrong = Workshop(home, FILE_SYSTEMS[options.file_system], FILES), 0
    for name in options.sequence or SEQUENCES:
        if time.monotonic() < end:
            count = len(perform(shop, SEQUENCES[name], FILES, {}, True)[0].ops)
            found = compare(shop, options.file_system, SEQUENCES[name], FILES, list(telling_plans(count)))
            wrong += report(name, found, verbose=True if options.sequence else options.verbose)
    return wrong


def _programs(home: Path, options: argparse.Namespace, end: float) -> int:
    shop = Workshop(home, FILE_SYSTEMS[options.file_system], INITIAL)
    wrong = tried = disks = made = unreached = 0
    for number, steps in enumerate(generated_programs(options.seed, options.programs)):
        if options.program and number not in options.program:
            continue
        if time.monotonic() > end:
            break
        program, rng = program_of(steps), random.Random(f"{options.seed}/{number}")
        keep_open = options.sound or rng.random() < 0.5  # what is not open cannot be written back
        count = len(perform(shop, program, INITIAL, {}, keep_open)[0].ops)
        plans: list[Plan] = [{}, *(random_plan(rng, count) for _ in range(options.plans - 1))]
        if options.sound:
            plans += [*telling_plans(count), *(random_plan(rng, count) for _ in range(SOUND))]
        found = compare(
            *(shop, options.file_system, program, INITIAL, plans),
            keep_open=keep_open,
            seed=number,
            least=options.plans,
        )
        wrong += report(f"program {number} {steps}", found, verbose=options.verbose or options.sound)
        tried, disks = tried + 1, disks + found.disks
        made += sum(map(len, found.generated))
        unreached += len(list(found.unreached()))
        if sys.stderr.isatty() or tried % REPORTED == 0:
            print(
                f"{tried} of {options.programs} programs, {disks} disks, {wrong} wrong",
                end=END,
                file=sys.stderr,
            )
    print(f"{tried} generated programs, {disks} disks mounted, seed {options.seed}")
    print(f"{unreached} of {made} generated states were not observed")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
