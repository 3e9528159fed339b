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
        "forgets-pending", "exactly-once", "repeats an interrupted call without checking whether it happened"
    ),
    _mutant("ignores-completed", "exactly-once", "runs a call again although its result is in the log"),
    _mutant(
        "key-without-arguments",
        "exactly-once",
        "treats any two calls of one tool as the same call, whatever their arguments",
    ),
    _mutant(
        "never-asks-the-user",
        "exactly-once",
        "records an unknown outcome as failed, and does not tell the user",
    ),
    _mutant("interrupts-twice", "single-interruption", "two sweeps record the same interruption"),
    _mutant(
        "interrupts-completed", "single-interruption", "records an interruption for a run that had completed"
    ),
    _mutant("buffered-log", "prefix-log", "keeps log lines in memory and writes them in batches"),
    _mutant("reuses-seq", "prefix-log", "numbers log lines from 1 again after a restart"),
    _mutant(
        "refuses-torn-line", "recovers", "treats a torn last line of the log as damage (points syscalls)"
    ),
    _mutant(
        "cuts-the-log",
        "prefix-log",
        "rolls back by truncating the log at the checkpoint, which removes the journal too",
        "files",
    ),
    _mutant("unsynced-log", "prefix-log", "does not sync the log: only a power loss exposes it"),
    _mutant(
        "acknowledges-before-sync",
        "single-interruption",
        "syncs each log line with the next one: only a power loss exposes it",
    ),
    _mutant(
        "unsynced-directory",
        "prefix-log",
        "does not sync the log's directory entry: only a power loss exposes it, and not on ext4",
        "files",
    ),
    _mutant(
        "synchronous-normal",
        "exactly-once",
        "lets SQLite sync at checkpoints only: only a power loss exposes it",
        "sqlite",
    ),
    _mutant("asks-again", "model-calls", "discards a decision with its turn, and asks the model again"),
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
        "numbers checkpoints by turn instead of consecutively (scenario cadence-periodic)",
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
        "upgrades an older config file that lacks the retries by setting them to 0 (scenario retry)",
    ),
    _mutant(
        "shows-rolled-back",
        "shown",
        "shows the conversation as it was before recovery (scenario cadence-periodic)",
    ),
    _mutant(
        "skips-hooks-on-resume",
        "exactly-once",
        "resumes a decision made before a crash without calling the hooks (scenario hooks)",
    ),
    _mutant(
        "ignores-cadence",
        "cadence",
        "writes a checkpoint after each turn, whatever is configured (scenario cadence-call)",
    ),
    _mutant("forgets-plan", "crash-equivalence", "resumes without its plan (scenario hooks)"),
    _mutant(
        "claims-while-degraded", "prefix-log", "acknowledges writes that a failing disk refused (fault disk)"
    ),
)


def _session_mutant(name: str, breaks: str, summary: str) -> Mutant:
    patch = f"chaoskit_scenarios.sessions.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks=breaks, patch=patch)


SESSION_MUTANTS = (
    _session_mutant("sweeps-twice", "single-interruption", "two sweeps record the same interruption"),
    _session_mutant("swaps-precedence", "status", "reports a wait that a restart interrupted as timed out"),
    _session_mutant(
        "stores-secrets", "tokens", "stores the secret of a token instead of its hash (scenario waiting)"
    ),
    _session_mutant(
        "consumes-in-memory", "tokens", "resumes before the use of the token is durable (scenario waiting)"
    ),
    _session_mutant(
        "cancels-in-memory",
        "crash-equivalence",
        "resumes a superseded request after a crash (scenario waiting)",
    ),
    _session_mutant(
        "old-requests-cancel",
        "crash-equivalence",
        "cancels the waiting run when an old request is repeated (scenario waiting)",
    ),
    _session_mutant(
        "unsynced-snapshot", "snapshot", "renames a snapshot before syncing it: only a power loss exposes it"
    ),
    _session_mutant(
        "ignores-last-event-id",
        "client-consistency",
        "sends a client that reconnects all events again (scenario http)",
    ),
)


def _whole_mutant(name: str, summary: str, *stores: str) -> Mutant:
    patch = f"chaoskit_scenarios.whole.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks="specification", patch=patch, stores=stores)


# Bugs that the generated workloads found in the agent.
WHOLE_MUTANTS = (
    _whole_mutant("forgets-failed", "never takes up a request again that has failed once"),
    _whole_mutant("reuses-turns", "gives the turns of a request that was rolled back to the next one"),
    _whole_mutant("stays-interrupted", "shows a run as interrupted although the store has its answer"),
    _whole_mutant("confirms-unsynced", "confirms a note that was written but not synced (fault power)"),
    _whole_mutant("forgets-equal-calls", "runs a call although an equal one was interrupted"),
    _whole_mutant("forgets-refusals", "does not record that a call was not run"),
    _whole_mutant("repeats-cancelled-writes", "repeats a write that was cancelled after it had happened"),
    _whole_mutant("stores-anything", "stores whatever a tool returns"),
    _whole_mutant("leaves-calls-open", "gives up a request and leaves its calls without results"),
    _whole_mutant("believes-cancellations", "stops when a tool raises CancelledError"),
    _whole_mutant("lets-providers-crash", "lets any error of a provider out"),
    _whole_mutant("migrates-twice", "reads the schema version before it has the lock", "sqlite"),
    _whole_mutant("keeps-sessions-open", "never closes a session"),
    _whole_mutant("resumes-the-next-wait", "lets a used token resume the next wait"),
    _whole_mutant("parks-after-cancel", "waits although it was cancelled, if a parallel call was running"),
    _whole_mutant("takes-over-turns", "continues a request among the messages of another one"),
    _whole_mutant("asks-for-cancelled", "tries again to get an answer for a request that was cancelled"),
    _whole_mutant("fulfils-twice", "tries a request again at once after it has failed"),
)


def _tree_mutant(name: str, breaks: str, summary: str, *stores: str) -> Mutant:
    patch = f"chaoskit_scenarios.tree.mutations:{name.replace('-', '_')}"
    return Mutant(name=name, summary=summary, breaks=breaks, patch=patch, stores=stores)


TREE_MUTANTS = (
    _tree_mutant("links-late", "tree", "acknowledges a spawn before the link to its parent is written"),
    _tree_mutant(
        "marks-before-delivery", "delivery", "marks a message as delivered before its receiver has handled it"
    ),
    _tree_mutant("stays-active", "no-active", "leaves agents ACTIVE that were ACTIVE at the crash"),
    _tree_mutant("wakes-without-parent", "tree", "resumes a child while its parent is suspended"),
    _tree_mutant(
        "adopts-blindly", "tree", "links a child below a parent that was stopped while it was spawned"
    ),
    _tree_mutant(
        "handles-again", "delivery", "does not recognise a message that was handled before the crash"
    ),
    _tree_mutant(
        "abandons-cancelled",
        "daemon-model",
        "leaves a cancelled operation on disk and not in memory",
        "sqlite",
    ),
    _tree_mutant("accepts-reply-ids", "daemon-model", "accepts the id of a reply as the id of a message"),
    _tree_mutant(
        "believes-ids", "daemon-model", "acknowledges another message under a known id as a repetition"
    ),
    _tree_mutant(
        "counts-after-turn",
        "recovers",
        "counts an attempt after the turn: one that kills the process never is",
    ),
    _tree_mutant("leaks-places", "daemon-model", "keeps the place of a reply when the question is set aside"),
    _tree_mutant("overfills", "daemon-model", "accepts one message more than a mailbox holds"),
    _tree_mutant("stops-only-children", "tree", "lets the grandchildren of a stopped agent go on"),
    _tree_mutant("trusts-providers", "recovers", "stores whatever a provider returns"),
    _tree_mutant("waits-forever", "recovers", "waits forever for a provider that does not answer"),
    _tree_mutant(
        "answers-with-excuses", "daemon-model", "reports why a question was set aside as the answer to it"
    ),
    _tree_mutant(
        "begins-segments-twice",
        "daemon-model",
        "begins a segment again after the one that failed (fault disk)",
        "files",
    ),
)
