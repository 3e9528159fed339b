"""A client that reads a session's stream of events. The World remembers the last one that it saw."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from chaoskit.inside import Life

PARTS = (2, 10**6)  # events per connection: the stream is cut in between


async def read_events(
    life: Life, http: httpx2.AsyncClient, session: str, newest: int, key: str = "last-event", **facts: Any
) -> None:
    """Read on from the last event seen to the newest, over two connections."""
    for left in PARTS:
        kept = life.call("client", "recall", key=key)
        last = kept["id"] if kept else 0
        if last >= newest:
            return
        headers = {"Last-Event-ID": str(last)} if last else {}
        async with http.stream("GET", f"/sessions/{session}/events", headers=headers) as response:
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    last = int(line[3:])
                elif line.startswith("data:"):  # after the id
                    about = json.loads(line[5:])
                    seen = {"kind": about["kind"], "status": about.get("status"), "run": about.get("run_id")}
                    life.call("client", "remember", key=key, id=last, **facts, **seen)
                    if last >= newest or (left := left - 1) == 0:
                        break
