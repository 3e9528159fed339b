"""A small agent that survives crashes: the correct example that chaoskit is measured against.

Terms: a *session* is a conversation; a *request* is one thing the user asked in it; a *run* is one attempt
to fulfil a request (a crash ends the run, resuming starts the next one); a *turn* is one decision of the
model plus the results of the tools it called; a *boot* is one lifetime of the process.

Guarantees, cited as G1... by the code and its tests:

G1  An accepted request is durable before it is acknowledged, and it is fulfilled after any crash.
G2  A checkpoint is written only when its turn is complete. Recovery removes everything after it.
G3  A model decision is durable before the agent acts on it, and the model is never asked for it again. The
    model may answer differently the second time, but the world has only seen the first answer.
G4  A mutating call is durable as `issued` before it runs and as `completed` afterwards. A completed call is
    answered from the log, verbatim, and never runs again.
G5  A call that was issued but not completed is settled by whatever its tool supports: repeat it under the
    same key, verify whether it happened, or report its outcome as unknown. It is never retried blindly.
G6  The event log is append-only, `seq` counts 1, 2, 3..., and a line is durable before it counts.
G7  A run that a crash ended gets exactly one `run.interrupted`, no matter how often recovery repeats.
G8  Nothing is acknowledged before it is durable. When a disk write fails, the agent continues in a
    `degraded` state, runs no mutating call, and catches up once the disk works again.
G9  One process per session. A damaged database is reported and left untouched.

Why G3 to G5 suffice even though the model never answers the same way twice:

    ask model ──> decision durable ──> issued durable ──> effect ──> finished durable ──> checkpoint
        │                │                   │               │              │
    crash here:      here: carry         here: settle     here: settle    here: answer
    no effect yet;   out the decision    the call as its  the call as its from the journal,
    ask again        in the journal      tool allows      tool allows     verbatim

A rollback removes messages but never the journal: work without effects is discarded, work that may have had
effects is carried to completion.

The parts, from the caller down to the disk:

    terminal/                       service/
    chat, say, serve: the           Coordinator: runs that wait, resume and are cancelled;
    command line and its settings   http_api: the same over HTTP
          |                               |
          +---------------+---------------+
                          v
    turn/    Agent: one open session. ModelCaller asks  ---> providers/: a script,
             the model, ToolRunner runs the tools,           or OpenAI-compatible HTTP
             HookRegistry and Cadence steer the loop;
             Runtime is what the surrounding process provides
                          |
                          v
    store/   Backlog: keeps writes in order and retries failed ones first
               +--> SessionStore (protocol): conversation, checkpoints, and the journal of requests,
               |    runs, decisions and calls; in SQLite, or as lines of the log (kinds, registry)
               +--> EventLog (event_log): one JSON line per event
                          |
                          v
    sessions/  state derived from the lines of the log: snapshot, resume tokens, status

    recovery/  work done on restart: incomplete turns are rolled back (rollback, for turn/), interrupted
               runs are recorded once (manager, for service/)
    daemon/    many agents in one process, in a tree, with mailboxes; its own state, on the same stores
    logs/      structured logs for operators; not part of the state

`messages` and `ids` are plain data shared by all of them. Every place where durable state changes announces
itself (`points`) so that a harness can crash there. No code in this package knows about a harness.
"""
