"""Words that the rules share: what clients ask, what tools answer, and how to find one in the other."""

from __future__ import annotations

from typing import Any

from chaoskit_invariants.specification.facts import Facts, Operation

Json = dict[str, Any]
PASSING = (408, 425, 429, 500, 502, 503, 504, None)  # statuses after which a request is repeated
DONE = "done, "  # begins the result of a tool that acted
UNKNOWN = "error: outcome unknown"
NOT_RUN = ("error: denied", "error: not run", "error: there is no tool", "error: cancelled")
CANCELLED = "error: cancelled: "  # and why its request ended
TOOLS = ("pay", "mail", "post", "note", "tip", "lookup", "approve", "jot", "fail")
WAITS = "approve"  # the tool whose result comes from outside
POSTS = ("post", "again")
TALKS = (*POSTS, "outcome", "continue")
# A service that refuses for one of these reasons was asked at a bad moment.
STOPPING, NOT_DURABLE, BUSY, NOTHING = "stopping", "not_durable", "busy", "nothing_to_do"


def request_of(operation: Operation) -> str:
    """`continue` resumes whichever request is open: its answer names it."""
    found = (operation.result or {}).get("request_id")
    return str(operation.args.get("request") or found or "")


def words_of(facts: Facts, request: str) -> str | None:
    """None if they are not known: other words may have been accepted under its id."""
    for operation in facts.named("other words"):
        if operation.args.get("request") == request and operation.refused not in ("request_id_reused", BUSY):
            return None
    return next((o.args["words"] for o in facts.named(*POSTS) if o.args.get("request") == request), None)
