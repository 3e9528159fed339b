"""Changes to the oracle against its own tests: which rules could be weakened, and nobody would notice?

    ci/oracle-matrix                                  every invariant
    ci/oracle-matrix specification daemon_model.py    a package or modules of chaoskit_invariants
    ci/oracle-matrix claims --sample 100 --seed 2

Each change (`source_mutants`) is made in a copy of the package, and a fork of this process, which has
imported pytest already, runs the tests of that module. A change is noticed if one of them fails.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from source_mutants import SourceMutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "invariants" / "chaoskit_invariants"
TESTS = {  # by the first part of a module's path; others have the tests of the invariants
    "specification": ["test_specification.py"],
    "daemon_model.py": ["test_daemon_model.py"],
    "claims": ["test_claims_agents.py", "test_claims_repeated.py", "test_claims_stores.py"],
}
OF_INVARIANTS = ["test_invariants.py", "test_invariants_strict.py", "test_oracle.py"]
SLOW = ["test_invariants_properties.py", "test_invariants_properties_services.py"]  # only if no other notices
MEMORY = 2 << 30


class Change(NamedTuple):
    file: Path  # within the package
    mutant: SourceMutant

    def __str__(self) -> str:
        return f"{self.file}:{self.mutant}"


def changes(paths: list[str], sample: int | None, seed: int) -> list[Change]:
    chosen = [PACKAGE / path for path in paths] or [PACKAGE]
    modules = sorted({m for path in chosen for m in ([path] if path.is_file() else path.rglob("*.py"))})
    every = [Change(m.relative_to(PACKAGE), mutant) for m in modules for mutant in mutants_of(m.read_text())]
    if sample is not None and sample < len(every):
        every = sorted(random.Random(seed).sample(every, sample))
    return every


def unchanged(wanted: list[Change]) -> list[Change]:
    """One of each group of tests, without its change: if the tests fail then, they notice nothing."""
    groups = {change.file.parts[0] if change.file.parts[0] in TESTS else "": change for change in wanted}
    sources = {change: (PACKAGE / change.file).read_text() for change in groups.values()}
    return [c._replace(mutant=c.mutant._replace(source=source)) for c, source in sources.items()]


def verdicts(wanted: list[Change], jobs: int) -> Iterator[tuple[Change, bool]]:
    running: dict[int, Change] = {}
    for change in wanted:
        if len(running) == jobs:
            yield _first_finished(running)
        running[_forked(change)] = change
    while running:
        yield _first_finished(running)


def _first_finished(running: dict[int, Change]) -> tuple[Change, bool]:
    pid, status = os.wait()
    return running.pop(pid), os.waitstatus_to_exitcode(status) != 0


def _forked(change: Change) -> int:
    process = os.fork()
    if process == 0:
        code = 1  # an error of any kind counts as noticed
        try:
            code = _tested(change)
        finally:
            os._exit(code)
    return process


def _tested(change: Change) -> int:
    """In the fork: the exit code of pytest, with the change."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # some changes never end, and collect
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    rounds = [TESTS[change.file.parts[0]]] if change.file.parts[0] in TESTS else [OF_INVARIANTS, SLOW]
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / PACKAGE.name
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / change.file).write_text(change.mutant.source)
        sys.path.insert(0, place)
        return int(any(_code_of(tests) for tests in rounds))


def _code_of(tests: list[str]) -> int:
    files = [str(ROOT / "tests" / name) for name in tests]
    quietly = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout", "20"]
    return int(pytest.main([*quietly, *files]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/oracle-matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", help="packages or modules of chaoskit_invariants (default: all)")
    parser.add_argument("--sample", type=int, help="this many changes, drawn from the seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    wanted = changes(options.paths, options.sample, options.seed)
    for change, fails in verdicts(unchanged(wanted), options.jobs):
        if fails:
            parser.error(f"the tests of {change.file} fail without a change")
    counts: dict[Path, Counter[str]] = {}
    for change, noticed in verdicts(wanted, options.jobs):
        counts.setdefault(change.file, Counter())["noticed" if noticed else "survived"] += 1
        if not noticed:
            print(f"survived  {change}", flush=True)
    for file, found in counts.items():
        print(f"{file}: {found['noticed']} of {found.total()} noticed")
    total = sum(counts.values(), Counter())
    print(f"{total['noticed']} of {total.total()} noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
