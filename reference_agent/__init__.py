"""A small agent that survives crashes: the sound example that chaoskit is measured against.

Words: a *session* is a conversation; a *request* is one thing the user asked in it; a *run* is one
attempt to fulfil a request (a crash ends it, resuming starts the next); a *turn* is one decision of
the model together with the results of the tools it called; a *boot* is one life of the process.

Guarantees, cited as G1... from the code and its tests:

G1  An accepted request is durable before it is acknowledged, and is fulfilled after any crash.
G2  A checkpoint is written only when its turn is complete; recovery removes what lies beyond it.
G3  A decision of the model is durable before anything is done about it, and is never asked for
    again: the model may answer differently the second time, the world has only seen the first.
G4  A mutating call is durable as `issued` before it runs and as `completed` after; a completed call
    is answered from the log, word for word, and never run again.
G5  A call that was issued and not completed is settled by what its tool can do: repeat under the
    same key, ask whether it happened, or say that nobody knows. Never a blind second try.
G6  The event log only grows, `seq` counts 1, 2, 3..., and a line is durable before it counts.
G7  A run that a crash ended gets exactly one `run.interrupted`, however often recovery is repeated.
G8  Nothing is claimed before it is durable. When the disk refuses, the agent goes on in a `degraded`
    state, runs nothing that changes the world, and catches up when the disk works again.
G9  One process per session; a damaged database is reported and left alone.

Why G3 to G5 are enough for a model that never answers the same way twice:

    ask model ──> decision durable ──> issued durable ──> effect ──> finished durable ──> checkpoint
        │                │                   │               │              │
    crash here:      here: the           here: settled    here: settled   here: answered
    nothing was      journal's decision  by the tool's    by the tool's   from the journal,
    done; ask again  is carried out      own means        own means       word for word

Rolling back removes messages, never the journal: what has had no effect is thrown away, what may have
had one is carried on.

Where things are, from whoever asks to the disk:

    terminal/                       service/
    chat, say, serve: the           Coordinator: runs that wait, resume and are cancelled;
    command line and its settings   http_api: the same over HTTP
          |                               |
          +---------------+---------------+
                          v
    turn/    Agent: one session, open. ModelCaller asks ---> providers/: a script,
             the model, ToolRunner runs the tools,           or OpenAI-compatible HTTP
             HookRegistry and Cadence have a say;
             Runtime is what the process around it provides
                          |
                          v
    store/   Backlog: writes in their order, those that failed first of all
               +--> SessionStore (protocol): conversation, checkpoints, and the journal of requests,
               |    runs, decisions and calls; in SQLite, or as lines of the log (kinds, registry)
               +--> EventLog (event_log): one JSON line per event
                          |
                          v
    sessions/  what the lines of the log add up to: snapshot, resume tokens, status

    recovery/  what a restart does: incomplete turns are rolled back (rollback, for turn/), interrupted
               runs are recorded once (manager, for service/)
    daemon/    many agents in one process, in a tree, with mailboxes; its own state, on the same stores
    logs/      structured logs for operators; no part of the state

`messages` and `ids` are the plain data that all of them share. Every place where durable state changes
announces itself (`points`), so that a harness can crash there. Nothing here knows of one.
"""
