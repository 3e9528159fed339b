"""Changes to the reference agent against the fuzzer: which are caught, by what, and which survive.

    ci/kill-matrix reference_agent/turn --sample 40 --seed 1 --for 25s      systematic (`source_mutants`)
    ci/kill-matrix --patches DIR --for 100s                                 every DIR/*.patch
    ci/kill-matrix --shipped --for 20s           every mutant of the scenarios, under each kind of fault

Each change is made in a copy of `reference_agent`, which precedes the installed package on the module search
path of campaigns of its own. A campaign ends at the first violation, and a change survives if every campaign
holds for its time. One line per change is appended to a file, so that an interrupted matrix continues where
it was.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from source_mutants import SourceMutant, mutants_of

from chaoskit import registry

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "reference_agent"
ON_FILES = {"files", "fold", "lines", "files_kind", "event_log"}  # modules that only one store uses
SHARED = {"store"}  # rooms that the daemon uses, too
NEVER_JUDGED = ("terminal", "logs")  # no workload goes through the command line
LONGEST = 120.0  # beyond its time limit, until a campaign counts as hung


class Campaign(NamedTuple):
    scenario: str
    options: tuple[str, ...]


class Change(NamedTuple):
    name: str
    campaigns: list[Campaign]  # in the order in which they are tried
    make: Callable[[Path], None]  # in a copy of the agent


def campaigns_for(files: Collection[Path]) -> list[Campaign]:
    """What goes through these modules most often, first."""
    rooms = {file.parts[0] for file in files}
    stores = ("files",) if {file.stem for file in files} & ON_FILES else ("sqlite",)
    if not rooms & {"daemon", *SHARED}:
        stores = ("sqlite", "files") if stores == ("sqlite",) else stores
    faults = ("--fault", "kill,disk,power")
    agents = [Campaign("agent", (*faults, "--store", store)) for store in stores]
    daemons = [Campaign("tree", ("--agents", "5", *faults, "--store", store)) for store in stores]
    service = Campaign("service", ("--fault", "kill", "--store", stores[0]))
    if rooms == {"daemon"}:
        return daemons
    if rooms & {"service", "providers"}:
        return [service, *agents]
    return [*agents, *(daemons if rooms & SHARED else [service])]


def systematic(paths: list[Path], sample: int | None, seed: int) -> list[Change]:
    modules = sorted(
        {module for path in paths for module in ([path] if path.is_file() else path.rglob("*.py"))}
    )
    judged = [module for module in modules if module.parent.name not in NEVER_JUDGED]
    every = [(module, mutant) for module in judged for mutant in mutants_of(module.read_text())]
    if sample is not None and sample < len(every):
        every = sorted(random.Random(seed).sample(every, sample))
    return [_with_source(module.relative_to(AGENT), mutant) for module, mutant in every]


def _with_source(file: Path, mutant: SourceMutant) -> Change:
    def make(copy: Path) -> None:
        (copy / file).write_text(mutant.source)

    return Change(f"reference_agent/{file}:{mutant}", campaigns_for((file,)), make)


def from_patch(patch: Path) -> Change:
    def make(copy: Path) -> None:
        subprocess.run(["git", "apply", "--unsafe-paths", patch.resolve()], cwd=copy.parent, check=True)

    changed = re.findall(r"^\+\+\+ b/reference_agent/(\S+)", patch.read_text(), re.M)
    return Change(patch.name, campaigns_for(tuple(map(Path, changed))), make)


def shipped() -> Iterator[Change]:
    """Every mutant of the scenarios under every kind of fault: which of them can see it?"""
    mutants = {mutant.name: mutant for s in registry.scenarios().values() for mutant in s.mutants}
    for mutant in mutants.values():
        assert mutant.drill is not None, mutant.name
        drill = mutant.drill
        options = {"--mutant": mutant.name, "--points": drill.points, "--profile": drill.profile}
        options |= {"--store": drill.store or (mutant.stores or ("sqlite",))[0]}
        options |= {"--agents": str(drill.agents)} if drill.agents else {}
        for fault in ("kill", "disk", "power"):
            words = tuple(itertools.chain.from_iterable({**options, "--fault": fault}.items()))
            yield Change(f"{mutant.name} x {fault}", [Campaign(drill.scenario, words)], lambda _copy: None)


def tried(change: Change, seconds: float, seed: int, jobs: int) -> dict[str, object]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "reference_agent"
        shutil.copytree(AGENT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        change.make(copy)
        how, by = "survived", ""
        for campaign in change.campaigns:
            each = seconds / len(change.campaigns)
            how, by = carried_out(campaign, Path(place), each, seed, jobs)
            if how != "survived":
                break
    return {"how": how, "by": by, "seconds": round(time.monotonic() - began, 1)}


def carried_out(campaign: Campaign, place: Path, seconds: float, seed: int, jobs: int) -> tuple[str, str]:
    command = [
        *(str(Path(sys.executable).with_name("chaoskit")), "run", campaign.scenario, *campaign.options),
        *("--plan", "sample", "--until-violation", "--for", f"{seconds:g}s"),
        *("--seed", str(seed), "--jobs", str(jobs), "--json", "-", "--dir", str(place / "results")),
    ]
    env = {**os.environ, "PYTHONPATH": str(place)}
    try:
        done = subprocess.run(
            command,
            env=env,
            cwd=place,
            capture_output=True,
            text=True,
            timeout=seconds + LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hung", campaign.scenario
    try:
        result = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
        return "not tested", f"{campaign.scenario}: exit code {done.returncode}: {last[0][:200]}"
    found = sorted({f"{each['invariant']}: {each['message'][:150]}" for each in result["findings"]})
    what = "; ".join(found[:2]) or "; ".join(map(str, result.get("doubts", ())))[:200] or result["verdict"]
    how = {"VIOLATED": "caught", "HOLDS": "survived"}.get(result["verdict"], "unknown")
    return how, f"{' '.join(campaign[:1])}, {result['runs']} runs: {what}"


def known(file: Path) -> dict[str, dict[str, object]]:
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["mutant"]: row for row in rows}


def matrix(changes: Sequence[Change], options: argparse.Namespace) -> Iterator[dict[str, object]]:
    done = known(options.results)
    for count, change in enumerate(changes, 1):
        row = done.get(change.name)
        if row is None:
            row = {"mutant": change.name, **tried(change, options.seconds, options.seed, options.jobs)}
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{count} of {len(changes)}  {row['how']:10}  {change.name}  [{row['by']}]", flush=True)
        yield row


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/kill-matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[AGENT], help="modules or packages to mutate")
    parser.add_argument("--sample", type=int, help="this many mutants, drawn from the seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=lambda text: float(text.rstrip("s")),
        default=25.0,
        help="seconds for each",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=Path("kill-matrix.jsonl"))
    parser.add_argument("--patches", type=Path, help="try the patches in this directory instead")
    parser.add_argument("--shipped", action="store_true", help="try the mutants of the scenarios instead")
    options = parser.parse_args()
    if options.shipped:
        changes = list(shipped())
    elif options.patches:
        changes = [from_patch(patch) for patch in sorted(options.patches.glob("*.patch"))]
    else:
        changes = systematic([path.resolve() for path in options.paths], options.sample, options.seed)
    rows = list(matrix(changes, options))
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(re.split(":| x ", str(row["mutant"]))[0], Counter())[str(row["how"])] += 1
    for module, found in counts.items():
        noticed = found.total() - found["survived"]
        print(f"{module}: {noticed} of {found.total()} noticed ({dict(found)})")
    total = Counter(str(row["how"]) for row in rows)
    print(f"{total.total() - total['survived']} of {total.total()} noticed: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
