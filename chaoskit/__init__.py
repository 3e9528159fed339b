"""chaoskit: crash an agent wherever it persists, restart it, and judge what it lost or repeated.

The nouns, in the order in which data flows, each with its module:

- a **Scenario** (`model`) is a Target, a seeded workload and the invariants that must hold;
- a **plan** (`search.plan`) turns the points of a run without faults into work items, each a
  **Schedule** of **Faults** (`faults`) or a few crash states of a **Recording** (`recording`);
- an **executor** (`search.executors`) runs the items on a **rig** (`search.rig`), in one process or several;
- the **supervisor** (`run.supervisor`) carries out one Schedule: it is the only code that starts,
  kills and restarts processes, with a **zygote** (`run.zygote`) to start them in milliseconds and a
  **World** (`run.world`) that lives outside the crash and keeps the ledger of effects;
- a **Run** (`model`) holds a trace and a **History**, the only input of
- the **oracle** (`search.oracle`), which gives a **Verdict** and **Findings**;
- a **campaign** (`search.campaign`) does this for whole plans and sums the outcomes into a **Result**
  (`search.result`);
- a **certificate** (`certify`) is a set of campaigns, one for each variant of a third-party adapter;
- a **Repro** (`repro`) is the printable token that reproduces a failure;
- `show` renders all of it; `cli` and `pytest_plugin` are the user interfaces.

Code that runs inside the target's process lives in `inside` and imports nothing from the rest.
"""

from __future__ import annotations

__version__ = "0.1.0"
