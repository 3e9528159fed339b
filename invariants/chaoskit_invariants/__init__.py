"""Invariants: pure properties of a History, one module each. The module says what the invariant verifies,
what it cannot see, and the smallest history that breaks it.

They read these facts, which a target reports through `chaoskit.inside.Life`:

    ack "accepted"   {"request", "run"}             a request is durable and will be fulfilled
    ack "turn"       {"turn", "messages", "log_seq"} a checkpoint holds this many messages
    ack "answer"     {"request", "answer"}          the answer to a request is durable
    ack "decided"    {"turn"}                       a decision of the model is durable
    ack "finished", "surfaced"  {"call", "args"}    a call ended, or its outcome is unknown and was reported
    probe "recovered", "end"  {"messages", "answers", "log"}   what is on disk; also "calls" (id -> status),
                     "checkpoints" (versions), "beyond" (messages after the last one)
    probe "found"    {"snapshot", "lines"}          what is on disk before a life touches anything
    probe "meant"    {"effects", "verifiable"}      what was asked for; services that tell what happened
    probe "answered" {"turn", "tokens"}             the model answered, and what that cost
    probe "asked"    {"turn", "orphans", "after", "said"}    the conversation sent to the model: `said`,
                     preceded by `after` messages unchanged since the last request of this life
    probe "shown"    {"shown"}                      what the user sees of a recovered conversation
    probe "cadence"  {"kind", "turns"}              the configured checkpoint cadence

and, for a daemon:

    ack "spawned"    {"agent", "parent"}            an agent and its place in the tree are durable
    ack "stopped"    {"agent"}                      it and all its descendants are stopped
    invoke "stop"    {"agent"}                      somebody asked for that
    ack "sent"       {"id", "from", "to", "asks", "poison"}     a message is durable
    ack "replied"    {"id", "said"}                 the reply to it, as reported to the client
    probe "recovered", "end"  {"agents", "parents", "messages", "log", "damage"}   what is on disk; also
                     "memory" (what the daemon says about it)
    probe "limits"   {"mailbox"}                    how many messages a mailbox holds
    ack "died"       {}                             a message killed the process (simulated: the life goes on)
    invoke "spawn", "send", "ask", "reply", ...     operations, with "outcome" as the result
"""

from __future__ import annotations

import importlib
import pkgutil

from chaoskit.model import Invariant

# Each sibling module declares its invariant as INVARIANT; packages (claims) declare theirs separately.
INVARIANTS: tuple[Invariant, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").INVARIANT
    for module in pkgutil.iter_modules(__path__)
    if not module.ispkg
)
