"""When to write a checkpoint (H5). Decisions and effects are in the journal at any cadence, so fewer
checkpoints mean more turns to replay after a crash, never more data lost."""

from __future__ import annotations

from typing import Literal

import msgspec


class Cadence(msgspec.Struct, frozen=True):
    """After each turn; also after each tool call; or after every N turns or T seconds, whichever comes
    first. A request's last turn always gets a checkpoint, because its answer is acknowledged."""

    kind: Literal["turn", "call", "periodic"] = "turn"
    turns: int | None = None
    seconds: float | None = None

    @property
    def after_calls(self) -> bool:
        return self.kind == "call"

    def due(self, turns: int, seconds: float) -> bool:
        """Given the turns and seconds since the last checkpoint, including this turn."""
        if self.kind != "periodic":
            return True
        by_turns = self.turns is not None and turns >= self.turns
        return by_turns or (self.seconds is not None and seconds >= self.seconds)
