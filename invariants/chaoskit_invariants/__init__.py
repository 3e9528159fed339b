"""Invariants: pure properties of a History. One module each; it says what the invariant verifies,
what it cannot see, and the smallest history that breaks it.

They read these facts, which a target reports through `chaoskit.inside.Life`:

    ack "accepted"   {"request", "run"}             a request is durable and will be fulfilled
    ack "turn"       {"turn", "messages", "log_seq"} a checkpoint holds so many messages
    ack "answer"     {"request", "answer"}          the answer to a request is durable
    probe "recovered", "end"  {"messages", "answers", "log"}   what is on disk
    probe "asked"    {"turn", "orphans", "after", "said"}    what the model is asked about: `said`, after
                     so many messages that are as they were when it was last asked in this life
    probe "shown"    {"shown"}                      what the user sees of a recovered conversation
    probe "cadence"  {"kind", "turns"}              how often a checkpoint was asked for

and of a daemon:

    ack "spawned"    {"agent", "parent"}            an agent is durable, and has its place in the tree
    ack "stopped"    {"agent"}                      and so are all below it
    ack "sent"       {"id", "from", "to", "asks", "poison"}     a message is durable
    ack "replied"    {"id", "said"}                 the reply to it, as the client was told
    probe "recovered", "end"  {"agents", "parents", "messages", "log", "damage"}   what is on disk
"""

from __future__ import annotations

import importlib
import pkgutil

from chaoskit.model import Invariant

# Every module beside this one declares its invariant as INVARIANT; packages (claims) declare theirs apart.
INVARIANTS: tuple[Invariant, ...] = tuple(
    importlib.import_module(f"{__name__}.{module.name}").INVARIANT
    for module in pkgutil.iter_modules(__path__)
    if not module.ispkg
)
