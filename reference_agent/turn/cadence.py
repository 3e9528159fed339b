"""When a checkpoint is written (H5). What was decided and done is in the journal at any cadence: a
checkpoint less often means more to go through again after a crash, never more to lose."""

from __future__ import annotations

from typing import Literal

import msgspec


class Cadence(msgspec.Struct, frozen=True):
    """After each turn; also after each tool call; or after every N turns or T seconds, whichever
    comes first. A request's last turn always gets one: its answer is claimed."""

    kind: Literal["turn", "call", "periodic"] = "turn"
    turns: int | None = None
    seconds: float | None = None

    @property
    def after_calls(self) -> bool:
        return self.kind == "call"

    def due(self, turns: int, seconds: float) -> bool:
        """Given what has passed since the last checkpoint, this turn included."""
        if self.kind != "periodic":
            return True
        by_turns = self.turns is not None and turns >= self.turns
        return by_turns or (self.seconds is not None and seconds >= self.seconds)
