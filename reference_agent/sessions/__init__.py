"""What is known about a session beside its conversation: its runs, waits, resume tokens and status.

    EventLog ──fold──> SessionSnapshot (snapshot)  ──┐
       ^     ──fold──> tokens (tokens)               ├──derive──> status (projector)
       │                                     boot, time
       └── append ── SessionRecord (record) <── TokenService (tokens), RecoveryManager (recovery.manager)

The log is the truth; `<session>.json` and `<session>.tokens.json` are caches of it that know how far they
have read. Whoever wants to change something appends a line; the next line that is due is decided from
what the lines before it add up to. That is why a crash between two lines needs no memory of its own:
asking again gives the same next line.

Guarantees, cited as R1... from the code and its tests:

R1  Everything is a fold of the log: a cache that is missing, behind, damaged or ahead of the log changes
    nothing, and nothing that only a cache knows is thrown away.
R2  The status is never stored as truth; one pure function knows the rules.
R3  A run of an older boot, or one whose wait cannot end any more, gets exactly one `run.interrupted`.
R4  A resume token is consumed once, by one line. The same request gets the same answer ever after.
R5  Only the hash of a token's secret is kept; its text leaves `mint` and `rotate` and is nowhere else.
R6  What older releases wrote is read, and only added to: lines of the log, fields they do not know.
"""
