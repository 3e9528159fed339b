"""The vendor's own conformance suite, run on the same target; the certificate shows its verdict.

An adapter names it as `suite = (name, program, argument)`: a program in the adapter's directory, with its
own inline metadata, that prints a JSON object with at least `verdict`, as text.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from chaoskit.adapter import Adapter, inline_metadata
from chaoskit.run import environment

PATIENCE = 300  # seconds


def run(adapter: Adapter, say: environment.Say) -> dict[str, Any] | None:
    """None without a suite; if the suite cannot be run, its verdict is the reason."""
    if "suite" not in adapter.options:
        return None
    name, program, argument = adapter.options["suite"]
    path = Path(adapter.reference.rpartition(":")[0]).parent / program
    say(f"running {name}")
    try:
        python = environment.interpreter(inline_metadata(path.read_text(), path).get("dependencies", ()), say)
    except environment.NoEnvironment as error:
        return {"name": name, "verdict": f"not run: {error}"}
    return {"name": name, **_verdict([python, str(path), argument], path.parent)}


def _verdict(command: list[str], directory: Path) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        # A suite may print progress before the object.
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().splitlines()[-1:]
        return {"verdict": f"failed to run: {last[0] if last else error.returncode}"}
    except (subprocess.TimeoutExpired, ValueError) as error:
        return {"verdict": f"failed to run: {error}"}
    return found
