"""Mutants of the reference agent: each has one bug found in real agents, and must be caught."""

from __future__ import annotations

from chaoskit.model import Mutant


def _mutant(name: str, breaks: str, summary: str, *stores: str) -> Mutant:
    patch = f"chaoskit_scenarios.agent.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks=breaks, patch=patch, stores=stores)


AGENT_MUTANTS = (
    _mutant("refuses-to-resume", "recovers", "treats a run that a crash left unfinished as corrupt"),
    _mutant("keeps-partial-turn", "rollback", "does not remove the messages of an incomplete turn"),
    _mutant("rollback-off-by-one", "rollback", "keeps one message beyond the checkpoint"),
    _mutant("intent-after-effect", "exactly-once", "records that a call was issued only after it ran"),
    _mutant(
        "forgets-pending", "exactly-once", "repeats an interrupted call without asking whether it happened"
    ),
    _mutant("ignores-completed", "exactly-once", "runs a call again although its result is in the log"),
    _mutant(
        "key-without-arguments",
        "exactly-once",
        "takes two calls of one tool for the same call, whatever their arguments",
    ),
    _mutant(
        "never-asks-the-user",
        "exactly-once",
        "settles an outcome that nobody knows as failed, and tells nobody",
    ),
    _mutant("interrupts-twice", "single-interruption", "two sweeps record the same interruption"),
    _mutant(
        "interrupts-completed", "single-interruption", "records an interruption for a run that had completed"
    ),
    _mutant("buffered-log", "prefix-log", "keeps log lines in memory and writes them in batches"),
    _mutant("reuses-seq", "prefix-log", "counts log lines from 1 again after a restart"),
    _mutant(
        "refuses-torn-line", "recovers", "takes a torn last line of the log for damage (points syscalls)"
    ),
    _mutant(
        "cuts-the-log",
        "prefix-log",
        "rolls back by cutting the log at the checkpoint, and the journal with it",
        "files",
    ),
    _mutant("unsynced-log", "prefix-log", "does not sync the log: only a loss of power shows it"),
    _mutant(
        "acknowledges-before-sync",
        "single-interruption",
        "syncs each log line with the next one: only a loss of power shows it",
    ),
    _mutant(
        "unsynced-directory",
        "prefix-log",
        "does not sync the log's name: only a loss of power shows it, and not on ext4",
        "files",
    ),
    _mutant(
        "synchronous-normal",
        "exactly-once",
        "lets SQLite sync at checkpoints only: only a loss of power shows it",
        "sqlite",
    ),
    _mutant("asks-again", "model-calls", "throws a decision away with its turn, and asks the model again"),
    _mutant("leaves-orphans", "model-calls", "asks the model although a call has no result yet"),
    _mutant("counts-usage-twice", "bookkeeping", "counts the tokens of a turn again when it is resumed"),
    _mutant(
        "forgets-attempts",
        "bookkeeping",
        "counts failed attempts from 0 again after a restart (scenario retry)",
    ),
    _mutant(
        "version-by-turn",
        "bookkeeping",
        "numbers checkpoints by turn, not by one more than the last (scenario cadence-periodic)",
    ),
    _mutant(
        "half-migration",
        "recovers",
        "upgrades the schema without a transaction (scenario migration)",
        "sqlite",
    ),
    _mutant("early-checkpoint", "crash-equivalence", "writes the checkpoint before the turn's tool results"),
    _mutant(
        "drops-arguments", "model-calls", "reads the calls of a stored message back without their arguments"
    ),
    _mutant(
        "upgrades-config-to-zero",
        "recovers",
        "saves an older config file with 0 for the retries that it lacks (scenario retry)",
    ),
    _mutant(
        "shows-rolled-back",
        "shown",
        "shows the conversation as it was before recovery (scenario cadence-periodic)",
    ),
    _mutant(
        "skips-hooks-on-resume",
        "exactly-once",
        "carries on what was decided before a crash without asking the hooks (scenario hooks)",
    ),
    _mutant(
        "ignores-cadence",
        "cadence",
        "writes a checkpoint after each turn, whatever was chosen (scenario cadence-call)",
    ),
    _mutant("forgets-plan", "crash-equivalence", "resumes without its plan (scenario hooks)"),
    _mutant("claims-while-degraded", "prefix-log", "acknowledges what a failing disk refused (fault disk)"),
)


def _session_mutant(name: str, breaks: str, summary: str) -> Mutant:
    patch = f"chaoskit_scenarios.sessions.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks=breaks, patch=patch)


SESSION_MUTANTS = (
    _session_mutant("sweeps-twice", "single-interruption", "two sweeps record the same interruption"),
    _session_mutant(
        "swaps-precedence", "status", "a wait that a restart interrupted is reported as one that ran out"
    ),
    _session_mutant(
        "stores-secrets", "tokens", "keeps the secret of a token instead of its hash (scenario waiting)"
    ),
    _session_mutant(
        "consumes-in-memory",
        "tokens",
        "resumes before it is durable that the token is used up (scenario waiting)",
    ),
    _session_mutant(
        "cancels-in-memory",
        "crash-equivalence",
        "a crash brings a superseded request back to life (scenario waiting)",
    ),
    _session_mutant(
        "old-requests-cancel",
        "crash-equivalence",
        "an old request said again cancels the run that waits (scenario waiting)",
    ),
    _session_mutant(
        "unsynced-snapshot",
        "snapshot",
        "renames a snapshot that is not synced: only a loss of power shows it",
    ),
    _session_mutant(
        "ignores-last-event-id",
        "client-consistency",
        "a client that reconnects gets all events again (scenario http)",
    ),
)


def _tree_mutant(name: str, breaks: str, summary: str) -> Mutant:
    patch = f"chaoskit_scenarios.tree.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks=breaks, patch=patch)


TREE_MUTANTS = (
    _tree_mutant("links-late", "tree", "acknowledges a spawn before the link to its parent is written"),
    _tree_mutant(
        "marks-before-delivery", "delivery", "marks a message as delivered before its receiver has handled it"
    ),
    _tree_mutant("stays-active", "no-active", "leaves the agents ACTIVE that were so when the crash came"),
    _tree_mutant("wakes-without-parent", "tree", "resumes a child while its parent is suspended"),
    _tree_mutant(
        "adopts-blindly", "tree", "links a child below a parent that was stopped while it was spawned"
    ),
    _tree_mutant(
        "handles-again", "delivery", "does not recognise a message that was handled before the crash"
    ),
)
