"""Systematic mutants of the reference agent against the fuzzer: which are caught, by what, and which survive.

    ci/kill-matrix reference_agent/turn --sample 40 --seed 1 --for 25s

Each mutant is a copy of `reference_agent` with one small change (`source_mutants`), which precedes the
installed package on the module search path of campaigns of its own. A campaign ends at the first
violation, and a mutant survives if every campaign holds for its time. One line per mutant is appended to
a file, so that an interrupted matrix continues where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from source_mutants import SourceMutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
AGENT = ROOT / "reference_agent"
KILLS = {1: "caught", 2: "cannot be tested", 3: "unknown", 4: "internal error", 0: "survived"}
NEVER_JUDGED = ("terminal", "logs")  # no workload goes through the command line
LONGEST = 120.0  # beyond its time limit, until a campaign counts as hung


class Campaign(NamedTuple):
    scenario: str
    options: tuple[str, ...]


def campaigns_for(module: Path) -> list[Campaign]:
    """What goes through a module most often, first."""
    room, on_files = module.parent.name, module.stem in ("files", "fold", "lines", "files_kind", "event_log")
    store = ("--store", "files") if on_files else ()
    faults = ("--fault", "kill,disk,power")
    if room == "daemon":
        return [Campaign("tree", ("--agents", "4", *faults, *store))]
    agent = Campaign("agent", (*faults, *store))
    daemon = Campaign("tree", ("--agents", "4", *faults, *store))
    service = Campaign("service", ("--fault", "kill"))
    return {"service": [service, agent], "store": [agent, daemon], "sessions": [agent, service]}.get(
        room, [agent]
    )


def chosen(paths: list[Path], sample: int | None, seed: int) -> list[tuple[Path, SourceMutant]]:
    modules = sorted(
        {module for path in paths for module in ([path] if path.is_file() else path.rglob("*.py"))}
    )
    judged = [module for module in modules if module.parent.name not in NEVER_JUDGED]
    every = [(module, mutant) for module in judged for mutant in mutants_of(module.read_text())]
    if sample is None or sample >= len(every):
        return every
    return sorted(random.Random(seed).sample(every, sample))


def tried(module: Path, mutant: SourceMutant, seconds: float, seed: int, jobs: int) -> dict[str, object]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "reference_agent"
        shutil.copytree(AGENT, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / module.relative_to(AGENT)).write_text(mutant.source)
        how, by = "survived", ""
        for campaign in campaigns_for(module):
            how, by = carried_out(campaign, Path(place), seconds, seed, jobs)
            if how != "survived":
                break
    return {"how": how, "by": by, "seconds": round(time.monotonic() - began, 1)}


def carried_out(campaign: Campaign, place: Path, seconds: float, seed: int, jobs: int) -> tuple[str, str]:
    command = [
        *(
            sys.executable,
            "-m",
            "chaoskit",
            "run",
            campaign.scenario,
            "--plan",
            "sample",
            "--until-violation",
        ),
        *campaign.options,
        *("--for", f"{seconds}s", "--seed", str(seed), "--jobs", str(jobs), "--json", "-"),
        *("--dir", str(place / "results")),
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
    return KILLS.get(done.returncode, f"exit code {done.returncode}"), reason(campaign, done)


def reason(campaign: Campaign, done: subprocess.CompletedProcess[str]) -> str:
    try:
        result = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or [""]
        return f"{campaign.scenario}: {last[0][:200]}"
    found = sorted({f"{each['invariant']}/{each['kind']}" for each in result["findings"] if "kind" in each})
    return f"{campaign.scenario}: {', '.join(found) or result['verdict']} after {result['runs']} runs"


def known(file: Path) -> dict[str, dict[str, object]]:
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {row["mutant"]: row for row in rows}


def matrix(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    done = known(options.results)
    every = chosen([path.resolve() for path in options.paths], options.sample, options.seed)
    for count, (module, mutant) in enumerate(every, 1):
        name = f"{module.relative_to(ROOT)}:{mutant}"
        row = done.get(name)
        if row is None:
            row = {"mutant": name, **tried(module, mutant, options.seconds, options.seed, options.jobs)}
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{count} of {len(every)}  {row['how']:10}  {name}  [{row['by']}]", flush=True)
        yield row


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/kill-matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[AGENT], help="modules or packages to mutate")
    parser.add_argument("--sample", type=int, help="this many mutants, drawn from the seed (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--for", dest="seconds", type=lambda text: float(text.rstrip("s")), default=25.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=Path("kill-matrix.jsonl"))
    rows = list(matrix(parser.parse_args()))
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(str(row["mutant"]).partition(":")[0], Counter())[str(row["how"])] += 1
    for module, found in counts.items():
        noticed = found.total() - found["survived"]
        print(f"{module}: {noticed} of {found.total()} noticed ({dict(found)})")
    total = Counter(str(row["how"]) for row in rows)
    print(f"{total.total() - total['survived']} of {total.total()} noticed: {dict(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
