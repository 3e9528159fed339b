"""The faults that can be asked for by name, and what each leaves behind."""

from __future__ import annotations

FAULTS = {
    "kill": "SIGKILL at a persist point: memory is lost, every completed write stays",
    "power": "loss of power: what was not synced is lost, in every way that the profile allows",
    "disk": "EIO, ENOSPC, short writes, failed syncs: once, and from one operation on",
}
