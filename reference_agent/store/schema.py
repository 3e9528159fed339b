"""The tables, version by version. Times are whole seconds since the epoch.

Version 1 is the schema of older releases: sessions, messages, token_usage and errors. Version 2 adds
checkpoints, the attempt number of an error, and the journal from which an incomplete turn is completed:
requests and runs (what was asked, and the attempts to fulfil it), decisions (what the model answered),
tool_calls (how it was carried out). Version 3 adds the request to which a decision or an error belongs.

Opening a database migrates it in one transaction: after a crash it has
either the old schema or the new one.

A checkpoint is a pointer, not a copy: version v of a transcript is every message up to its `last_msg_id`.
Messages are never modified and are removed only beyond the last checkpoint, so every version stays
loadable, and a checkpoint costs the same at turn 1,000 as at turn 10. Plans are stored by their hash for
the same reason.
"""

V1 = """
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    agent_id   TEXT NOT NULL,
    model      TEXT NOT NULL,
    provider   TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE TABLE messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id   TEXT NOT NULL REFERENCES sessions(id),
    agent_id     TEXT NOT NULL,
    turn         INTEGER NOT NULL,
    role         TEXT NOT NULL,
    content      TEXT NOT NULL,
    tool_call_id TEXT,
    tool_name    TEXT,
    tool_args    TEXT,  -- the calls of an assistant message, as JSON
    created_at   INTEGER NOT NULL
);
CREATE TABLE token_usage (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id    TEXT NOT NULL REFERENCES sessions(id),
    agent_id      TEXT NOT NULL,
    turn          INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    created_at    INTEGER NOT NULL
);
CREATE TABLE errors (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    agent_id   TEXT NOT NULL,
    turn       INTEGER NOT NULL,
    context    TEXT NOT NULL,
    message    TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
"""

V2 = """
ALTER TABLE errors ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN is_error INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN reasoning TEXT;
ALTER TABLE sessions ADD COLUMN scratchpad TEXT;
CREATE INDEX messages_of ON messages (session_id, id);
CREATE INDEX usage_of ON token_usage (session_id, turn);
CREATE INDEX errors_of ON errors (session_id, turn);
CREATE TABLE checkpoints (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id   TEXT NOT NULL REFERENCES sessions(id),
    agent_id     TEXT NOT NULL,
    turn         INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    last_msg_id  INTEGER NOT NULL,  -- every message up to this one is complete
    plan         TEXT,              -- its hash in plans
    spent_tokens INTEGER NOT NULL,
    limit_tokens INTEGER,
    created_at   INTEGER NOT NULL,
    UNIQUE (session_id, version)
);
CREATE TABLE plans (
    hash    TEXT PRIMARY KEY,
    content TEXT NOT NULL
);
CREATE TABLE requests (
    session_id TEXT NOT NULL REFERENCES sessions(id),
    request_id TEXT NOT NULL,
    content    TEXT NOT NULL,
    first_turn INTEGER NOT NULL,  -- the turn that begins with the user's message
    answer     TEXT,              -- set when the request is fulfilled
    PRIMARY KEY (session_id, request_id)
);
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    request_id TEXT NOT NULL,
    boot_id    TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'interrupted')),
    reason     TEXT,
    started_at INTEGER NOT NULL
);
CREATE INDEX runs_of ON runs (session_id);
CREATE TABLE decisions (
    session_id TEXT NOT NULL REFERENCES sessions(id),
    turn       INTEGER NOT NULL,
    message    TEXT NOT NULL,
    PRIMARY KEY (session_id, turn)
);
CREATE TABLE tool_calls (
    session_id      TEXT NOT NULL REFERENCES sessions(id),
    call_id         TEXT NOT NULL,
    tool_name       TEXT NOT NULL,
    args_json       TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('issued', 'completed', 'failed', 'unknown')),
    result_text     TEXT,
    started_at      INTEGER NOT NULL,
    completed_at    INTEGER,
    PRIMARY KEY (session_id, call_id)
);
CREATE INDEX calls_by_key ON tool_calls (session_id, idempotency_key);
"""

# Whose turn it was: a request that was given up may be rolled back, and its turns must not be taken for those
# of the next one. What an older release recorded belongs to the request that had begun last.
V3 = """
ALTER TABLE decisions ADD COLUMN request_id TEXT;
ALTER TABLE errors ADD COLUMN request_id TEXT;
UPDATE decisions SET request_id = (
    SELECT q.request_id FROM requests q WHERE q.session_id = decisions.session_id
    AND q.first_turn <= decisions.turn ORDER BY q.first_turn DESC LIMIT 1);
UPDATE errors SET request_id = (
    SELECT q.request_id FROM requests q WHERE q.session_id = errors.session_id
    AND q.first_turn <= errors.turn ORDER BY q.first_turn DESC LIMIT 1);
"""

MIGRATIONS = (V1, V2, V3)
VERSION = len(MIGRATIONS)
