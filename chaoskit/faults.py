"""The faults that can be asked for by name, and what each leaves behind."""

from __future__ import annotations

FAULTS = {
    "kill": "SIGKILL before or after a persist point: memory is lost, every completed write stays",
}
