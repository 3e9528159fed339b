"""Mutants of the reference agent: each has one bug found in real agents, and must be caught.

Each declares the requirements that its bug violates, the invariant that must catch it, and its drill: the
campaign that does. `docs/fire-drill.md` is generated from these declarations.
"""

from __future__ import annotations

from typing import Any

from chaoskit.model import Drill, Mutant

DISK: dict[str, Any] = {"faults": ("disk",), "plan": "sample"}
POWER: dict[str, Any] = {"faults": ("power",)}
POWER_POSIX: dict[str, Any] = {"faults": ("power",), "profile": "posix"}


def _mutant(
    room: str, name: str, breaks: str, violates: str, summary: str, drill: Drill, *stores: str
) -> Mutant:
    """`violates` has the names of requirements, separated by spaces."""
    patch = f"chaoskit_scenarios.{room}.mutations:{name.replace('-', '_')}"
    return Mutant(
        name=name,
        summary=summary,
        breaks=breaks,
        patch=patch,
        violates=tuple(violates.split()),
        drill=drill,
        stores=stores,
    )


def _agent(
    name: str,
    breaks: str,
    violates: str,
    summary: str,
    *stores: str,
    scenario: str = "payments",
    **options: Any,
) -> Mutant:
    return _mutant("agent", name, breaks, violates, summary, Drill(scenario=scenario, **options), *stores)


AGENT_MUTANTS = (
    _agent("refuses-to-resume", "recovers", "K2", "treats a run that a crash left unfinished as corrupt"),
    _agent("keeps-partial-turn", "rollback", "K1 K2", "does not remove the messages of an incomplete turn"),
    _agent("rollback-off-by-one", "rollback", "K2", "keeps one message beyond the checkpoint"),
    _agent("intent-after-effect", "exactly-once", "H2", "records that a call was issued only after it ran"),
    _agent(
        "forgets-pending",
        "exactly-once",
        "H4",
        "repeats an interrupted call without checking whether it happened",
    ),
    _agent("ignores-completed", "exactly-once", "H3", "runs a call again although its result is in the log"),
    _agent(
        "key-without-arguments",
        "exactly-once",
        "H2",
        "treats any two calls of one tool as the same call, whatever their arguments",
    ),
    _agent(
        "never-asks-the-user",
        "exactly-once",
        "H4",
        "records an unknown outcome as failed, and does not tell the user",
    ),
    _agent("interrupts-twice", "single-interruption", "O3", "two sweeps record the same interruption"),
    _agent(
        "interrupts-completed",
        "single-interruption",
        "O3",
        "records an interruption for a run that had completed",
    ),
    _agent("buffered-log", "prefix-log", "O1", "keeps log lines in memory and writes them in batches"),
    _agent("reuses-seq", "prefix-log", "O1", "numbers log lines from 1 again after a restart"),
    _agent(
        "refuses-torn-line",
        "recovers",
        "O1",
        "treats a torn last line of the log as damage",
        points="syscalls",
        plan="sample",
        store="files",
    ),
    _agent(
        "cuts-the-log",
        "prefix-log",
        "O1",
        "rolls back by truncating the log at the checkpoint, which removes the journal too",
        "files",
    ),
    _agent("unsynced-log", "prefix-log", "O1", "does not sync the log", **POWER),
    _agent(
        "acknowledges-before-sync",
        "single-interruption",
        "O3 K9",
        "syncs each log line with the next one",
        **POWER,
    ),
    _agent(
        "unsynced-directory",
        "prefix-log",
        "O1",
        "does not sync the log's directory entry, which ext4 forgives",
        "files",
        **POWER_POSIX,
    ),
    _agent(
        "synchronous-normal",
        "exactly-once",
        "K1 H2",
        "lets SQLite sync at checkpoints only",
        "sqlite",
        **POWER,
    ),
    _agent("asks-again", "model-calls", "H8", "discards a decision with its turn, and asks the model again"),
    _agent("leaves-orphans", "model-calls", "K1", "asks the model although a call has no result yet"),
    _agent("counts-usage-twice", "bookkeeping", "H6", "counts the tokens of a turn again when it is resumed"),
    _agent(
        "forgets-attempts",
        "bookkeeping",
        "K5",
        "counts failed attempts from 0 again after a restart",
        scenario="retry",
    ),
    _agent(
        "version-by-turn",
        "bookkeeping",
        "H1",
        "numbers checkpoints by turn instead of consecutively",
        scenario="cadence-periodic",
    ),
    _agent(
        "half-migration",
        "recovers",
        "K3 O8",
        "upgrades the schema without a transaction",
        "sqlite",
        scenario="migration",
    ),
    _agent("early-checkpoint", "crash-equivalence", "K1", "writes the checkpoint before the turn's results"),
    _agent("drops-arguments", "model-calls", "K4", "reads the calls of a stored message without arguments"),
    _agent(
        "upgrades-config-to-zero",
        "recovers",
        "K6",
        "upgrades an older config file that lacks the retries by setting them to 0",
        scenario="retry",
    ),
    _agent(
        "shows-rolled-back",
        "shown",
        "K7",
        "shows the conversation as it was before recovery",
        scenario="cadence-periodic",
    ),
    _agent(
        "skips-hooks-on-resume",
        "exactly-once",
        "K8",
        "resumes a decision made before a crash without calling the hooks",
        scenario="hooks",
    ),
    _agent(
        "ignores-cadence",
        "cadence",
        "H5",
        "writes a checkpoint after each turn, whatever is configured",
        scenario="cadence-call",
    ),
    _agent("forgets-plan", "crash-equivalence", "H6", "resumes without its plan", scenario="hooks"),
    _agent(
        "claims-while-degraded", "prefix-log", "K9", "acknowledges writes that a failing disk refused", **DISK
    ),
)


def _session(
    name: str, breaks: str, violates: str, summary: str, *, scenario: str = "waiting", **options: Any
) -> Mutant:
    return _mutant("sessions", name, breaks, violates, summary, Drill(scenario=scenario, **options))


SESSION_MUTANTS = (
    _session(
        "sweeps-twice",
        "single-interruption",
        "O3 O4",
        "two sweeps record the same interruption",
        scenario="interrupted",
    ),
    _session("swaps-precedence", "status", "O2", "reports a wait that a restart interrupted as timed out"),
    _session("stores-secrets", "tokens", "O5", "stores the secret of a token instead of its hash"),
    _session("consumes-in-memory", "tokens", "O5", "resumes before the use of the token is durable"),
    _session("cancels-in-memory", "crash-equivalence", "O4", "resumes a superseded request after a crash"),
    _session(
        "old-requests-cancel",
        "crash-equivalence",
        "O4",
        "cancels the waiting run when an old request is repeated",
    ),
    _session(
        "unsynced-snapshot",
        "snapshot",
        "O1",
        "renames a snapshot before syncing it",
        scenario="interrupted",
        **POWER,
    ),
    _session(
        "ignores-last-event-id",
        "client-consistency",
        "O7",
        "sends a client that reconnects all events again",
        scenario="http",
    ),
)


def _whole(name: str, violates: str, summary: str, *stores: str, faults: str = "kill") -> Mutant:
    drill = Drill(scenario="agent", plan="sample", faults=tuple(faults.split(",")))
    return _mutant("whole", name, "specification", violates, summary, drill, *stores)


# Bugs that the generated workloads found in the agent.
WHOLE_MUTANTS = (
    _whole("forgets-failed", "K5", "never takes up a request again that has failed once"),
    _whole("reuses-turns", "K2", "gives the turns of a request that was rolled back to the next one"),
    _whole("stays-interrupted", "O2", "shows a run as interrupted although the store has its answer"),
    _whole("confirms-unsynced", "H4", "confirms a note that was written but not synced", faults="kill,power"),
    _whole("forgets-equal-calls", "H2 H4", "runs a call although an equal one was interrupted"),
    _whole("forgets-refusals", "H2 H8", "does not record that a call was not run", faults="disk"),
    _whole(
        "repeats-cancelled-writes",
        "K9",
        "repeats a write that was cancelled after it had happened",
        faults="disk",
    ),
    _whole("stores-anything", "K4", "stores whatever a tool returns"),
    _whole("leaves-calls-open", "K1", "gives up a request and leaves its calls without results"),
    _whole("believes-cancellations", "K5", "stops when a tool raises CancelledError"),
    _whole("lets-providers-crash", "K5", "lets any error of a provider out"),
    _whole("migrates-twice", "K3", "reads the schema version before it has the lock", "sqlite"),
    _whole("keeps-sessions-open", "O7", "never closes a session"),
    _whole("resumes-the-next-wait", "O5", "lets a used token resume the next wait"),
    _whole("parks-after-cancel", "O4", "waits although it was cancelled, if a parallel call was running"),
    _whole("takes-over-turns", "K2 O8", "continues a request among the messages of another one"),
    _whole("asks-for-cancelled", "O4", "tries again to get an answer for a request that was cancelled"),
    _whole("fulfils-twice", "K5", "tries a request again at once after it has failed"),
)


def _tree(name: str, breaks: str, violates: str, summary: str, *stores: str, **options: Any) -> Mutant:
    drill = Drill(scenario="tree", plan="sample", **{"agents": 6, **options})
    return _mutant("tree", name, breaks, violates, summary, drill, *stores)


TREE_MUTANTS = (
    _tree("links-late", "tree", "S2", "acknowledges a spawn before the link to its parent is written"),
    _tree(
        "marks-before-delivery",
        "delivery",
        "S3",
        "marks a message as delivered before its receiver has handled it",
    ),
    _tree("stays-active", "no-active", "S4", "leaves agents ACTIVE that were ACTIVE at the crash"),
    _tree("wakes-without-parent", "tree", "S1 S4", "resumes a child while its parent is suspended"),
    _tree(
        "adopts-blindly", "tree", "S2", "links a child below a parent that was stopped while it was spawned"
    ),
    _tree(
        "handles-again", "delivery", "S3", "does not recognise a message that was handled before the crash"
    ),
    _tree(
        "abandons-cancelled",
        "daemon-model",
        "S1 S3",
        "leaves a cancelled operation on disk and not in memory",
        "sqlite",
    ),
    _tree("accepts-reply-ids", "daemon-model", "S9", "accepts the id of a reply as the id of a message"),
    _tree(
        "believes-ids", "daemon-model", "S3", "acknowledges another message under a known id as a repetition"
    ),
    _tree(
        "counts-after-turn",
        "recovers",
        "S4",
        "counts an attempt after the turn: one that kills the process never is",
    ),
    _tree("leaks-places", "daemon-model", "S9", "keeps the place of a reply when the question is set aside"),
    _tree("overfills", "daemon-model", "S3", "accepts one message more than a mailbox holds"),
    _tree("stops-only-children", "tree", "S2", "lets the grandchildren of a stopped agent go on"),
    _tree("trusts-providers", "recovers", "S1", "stores whatever a provider returns"),
    _tree("waits-forever", "recovers", "S4", "waits forever for a provider that does not answer"),
    _tree(
        "answers-with-excuses",
        "daemon-model",
        "S9",
        "reports why a question was set aside as the answer to it",
    ),
    _tree(
        "begins-segments-twice",
        "daemon-model",
        "S1 S2",
        "begins a segment again after the one that failed",
        "files",
        faults=("disk",),
        agents=4,
    ),
)
