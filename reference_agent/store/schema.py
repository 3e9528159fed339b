"""The tables. Times are whole seconds since the epoch; JSON is what msgspec writes.

sessions, messages and checkpoints are the conversation; requests and runs are what was asked and
who tried to do it; decisions and tool_calls are the journal from which an incomplete turn is
carried on (G3, G4).
"""

VERSION = 1

TABLES = """
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE TABLE requests (
    session_id TEXT NOT NULL REFERENCES sessions(id),
    request_id TEXT NOT NULL,
    content    TEXT NOT NULL,
    first_turn INTEGER NOT NULL,  -- a checkpoint of this turn or later contains the user's message
    answer     TEXT,              -- set when the request is fulfilled
    PRIMARY KEY (session_id, request_id)
);
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    request_id TEXT NOT NULL,
    boot_id    TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('running', 'completed', 'interrupted')),
    started_at INTEGER NOT NULL
);
CREATE TABLE messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id   TEXT NOT NULL REFERENCES sessions(id),
    turn         INTEGER NOT NULL,
    role         TEXT NOT NULL,
    content      TEXT NOT NULL,
    tool_call_id TEXT,
    tool_name    TEXT,
    tool_args    TEXT,             -- the calls of an assistant message
    created_at   INTEGER NOT NULL
);
CREATE TABLE checkpoints (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id  TEXT NOT NULL REFERENCES sessions(id),
    turn        INTEGER NOT NULL,
    last_msg_id INTEGER NOT NULL,  -- every message up to this one is complete
    created_at  INTEGER NOT NULL
);
CREATE TABLE decisions (
    session_id TEXT NOT NULL REFERENCES sessions(id),
    turn       INTEGER NOT NULL,
    message    TEXT NOT NULL,
    PRIMARY KEY (session_id, turn)
);
CREATE TABLE tool_calls (
    session_id      TEXT NOT NULL REFERENCES sessions(id),
    idempotency_key TEXT NOT NULL,
    call_id         TEXT NOT NULL,
    tool_name       TEXT NOT NULL,
    args            TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('issued', 'completed', 'failed')),
    result          TEXT,
    PRIMARY KEY (session_id, idempotency_key)
);
"""
