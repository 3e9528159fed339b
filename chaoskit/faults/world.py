"""World errors: a service that the target calls answers with an error, or its reply is lost.

Method. The World lives in the supervisor, which answers every call. `refused`: the caller gets an error, and
nothing happened. `lost`: the effect happens and is in the ledger, and the caller gets an error that does not
say so. Points are the calls of a life, numbered by service and action. Bookkeeping of the harness
(`ask`, `remember`, `recall`) is never disturbed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from chaoskit.faults.kind import Arming, CallFault, FaultKind
from chaoskit.model import Fault, Firing, PersistPoint

QUERY = ".happened"  # without effect: whether its reply is lost makes no difference


class WorldError(Fault, msgspec.Struct, frozen=True, tag="world"):
    """`refused`: nothing happened. `lost`: it happened, and the caller is not told."""

    point: PersistPoint
    how: Literal["refused", "lost"]

    def __str__(self) -> str:
        return f"{self.name} at {self.point}"

    @property
    def name(self) -> str:
        return "call refused" if self.how == "refused" else "reply lost"

    @property
    def tier(self) -> str:
        return "world"


def at(firing: Firing) -> list[Fault]:
    if firing.when != "call":
        return []
    refused = WorldError(firing.point, "refused")
    return [refused] if firing.point.name.endswith(QUERY) else [refused, WorldError(firing.point, "lost")]


def arm(fault: WorldError) -> Arming:
    return Arming(call=CallFault(fault.point.name, fault.point.nth, fault.how == "lost"))


KIND = FaultKind(
    name="world",
    summary="a call of a service fails, or is done and its reply is lost",
    data=WorldError,
    at=at,
    arm=arm,
    survivable=True,
    sweep_rounds=1,
    strikes_calls=True,
)
