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

Who does what:

    Agent (agent, asking) -- asks --> Provider (providers)  ToolRunner (calls) -- runs --> Tool (tools)
      |    |                                                    |
      |    +--> HookRegistry (hooks), Cadence (cadence)         |
      |   Recovery (recovery)                                   |
      v        v                                                v
    Backlog (backlog): writes in their order, those that failed first of all
      |
      +--> SessionStore (store): sessions, messages, token_usage, errors, checkpoints, plans;
      |    the journal: requests, runs, decisions, tool_calls; in SQLite, or as lines of the log
      +--> EventLog (log): one JSON line per event
             |
             +--> sessions: snapshot, resume tokens, status and interruptions, all read from these lines
                      ^
    Coordinator (coordinator), behind HTTP (http_api, serve), or Chat (chat): who has an agent work

Every place where durable state changes announces itself (`points`), so that a harness can crash
there. Nothing here knows of one.
"""
