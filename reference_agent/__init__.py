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

Who does what:

    Agent (agent) -- asks --> Model (model)          ToolRunner (calls) -- runs --> Tool (tools)
      |                                                 |
      |   Recovery (recovery)                           |
      v        v                                        v
    SessionStore (store): sessions, requests, runs, messages, decisions, tool_calls, checkpoints
    EventLog (log): one JSON line per event

Every place where durable state changes announces itself (`points`), so that a harness can crash
there. Nothing here knows of one.
"""
