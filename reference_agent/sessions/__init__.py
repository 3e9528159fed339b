"""A session's state besides its conversation: its runs, waits, resume tokens and status.

    EventLog ──fold──> SessionSnapshot (snapshot)  ──┐
       ^     ──fold──> tokens (tokens)               ├──derive──> status (projector)
       │                                     boot, time
       └── append ── SessionRecord (record) <── TokenService (tokens), RecoveryManager (recovery.manager)

The log is the source of truth; `<session>.json` and `<session>.tokens.json` are caches that record the seq
they have read up to. Every change is an appended line, and the next line that is due is computed from the
lines before it. A crash between two lines therefore needs no extra state: recomputing yields the same next
line.

Guarantees, cited as R1... by the code and its tests:

R1  All state is a fold of the log. A cache that is missing, stale, damaged or ahead of the log changes
    nothing, and data that only a cache holds is never discarded.
R2  The status is never stored as truth; one pure function defines the rules.
R3  A run of an older boot, or one whose wait can no longer end, gets exactly one `run.interrupted`.
R4  A resume token is consumed once, by one line. Repeating the same request always returns the same answer.
R5  Only the hash of a token's secret is stored; `mint` and `rotate` return the text, and it exists nowhere
    else.
R6  Data written by older releases is read and only added to: new lines in the log, new fields in the files.
"""
