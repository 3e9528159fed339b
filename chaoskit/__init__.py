"""chaoskit: crash an agent wherever it persists, restart it, and judge what it lost or repeated.

The nouns, in the order in which data flow, each with its module:

- a **Scenario** (`model`) is a Target, a seeded workload and the invariants that must hold;
- a **plan** (`plan`) turns the points seen in a run without faults into **Schedules**;
- the **supervisor** (`supervisor`) carries out one Schedule: it is the only code that starts,
  kills and restarts processes, with a **zygote** (`zygote`) to start them in milliseconds and a
  **World** (`world`) that lives outside the crash and keeps the ledger of effects;
- a **Run** (`model`) holds a trace and a **History**, the only input of
- the **oracle** (`oracle`), which gives a **Verdict** and **Findings**;
- a **campaign** (`campaign`) does this for a whole plan, on several cores;
- a **Repro** (`repro`) is the printable token from which a failure is met again.

What runs inside the target's process lives in `inside` and imports nothing of all this.
"""

from __future__ import annotations

__version__ = "0.1.0"
