"""The memory that interposer.c shares with Python: control page, inode table, trace.

Constants have the same names as in C; fields have the names of the struct members, in the same order.
`tests/disk/test_layout.py` compiles a comparison of the two sides. Change both together, and VERSION.

Imported into the target's process, so it imports only `struct`.
"""

from __future__ import annotations

import struct

MAGIC = 0x314B53494454494B
VERSION = 6

MODE_OFF, MODE_COUNT, MODE_RECORD = range(3)
OPTION_SECCOMP = 1
OPTION_CHECK = 2
FIRED_NOT, FIRED_YES, FIRED_NOT_APPLICABLE = range(3)

ACTION_NONE = 0
ACTION_KILL_BEFORE = 1
ACTION_KILL_AFTER = 2
ACTION_KILL_HALF = 3
ACTION_FAIL = 4
ACTION_SHORT = 5
ACTION_LOSE = 6
ACTION_FILL = 7

KIND_CREATE = 1
KIND_MKDIR = 2
KIND_SYMLINK = 3
KIND_LINK = 4
KIND_RENAME = 5
KIND_UNLINK = 6
KIND_RMDIR = 7
KIND_WRITE = 8
KIND_TRUNCATE = 9
KIND_ALLOCATE = 10
KIND_PUNCH = 11
KIND_FSYNC = 12
KIND_FDATASYNC = 13
KIND_SYNC = 14
# Notes between the operations: they have no index.
KIND_WARNING = 32
KIND_BEFORE_IMAGE = 33
KIND_SYNC_RANGE = 34
KIND_ELSEWHERE = 35
KIND_CLOSE = 36

FLAG_DURABLE = 1
FLAG_APPEND = 2
FLAG_TORN = 4
FLAG_REVERTED = 8
FLAG_KEEP_SIZE = 16
FLAG_MOVED_IN = 32
FLAG_MOVED_OUT = 64
FLAG_EXCHANGE = 128
FLAG_NAMELESS = 256
FLAG_WHOLE = 512
FLAG_MAPPED = 1024
FLAG_JOINED = 2048

# (member, struct format). No struct has padding between its members.
CONTROL_FIELDS = (
    ("magic", "Q"),
    ("version", "I"),
    ("mode", "I"),
    ("lock", "I"),
    ("dead", "I"),
    ("position", "Q"),
    ("trace_end", "Q"),
    ("trace_size", "Q"),
    ("overflow", "I"),
    ("warnings", "I"),
    ("last_record", "I"),
    ("generation", "I"),
    ("slots_used", "I"),
    ("options", "I"),
    ("group", "I"),
    ("action", "I"),
    ("action_at", "Q"),
    ("action_count", "Q"),
    ("action_kinds", "Q"),
    ("action_errno", "I"),
    ("fired", "I"),
    ("fired_index", "Q"),
    ("fired_pid", "I"),
    ("fired_times", "I"),
    ("root.device", "Q"),
    ("root.inode", "Q"),
    ("trapped", "I"),
    ("nested", "I"),
    ("stolen", "I"),
    ("shared_mappings", "I"),
    ("msyncs", "I"),
    ("then_kill", "I"),
    ("then_at", "Q"),
    ("then_fired", "I"),
)
SLOT_FIELDS = (("id.device", "Q"), ("id.inode", "Q"), ("generation", "I"), ("state", "I"))
RECORD_FIELDS = (
    ("size", "I"),
    ("previous", "I"),
    ("kind", "H"),
    ("flags", "H"),
    ("pid", "I"),
    ("index", "Q"),
    ("file.device", "Q"),
    ("file.inode", "Q"),
    ("parent.device", "Q"),
    ("parent.inode", "Q"),
    ("parent2.device", "Q"),
    ("parent2.inode", "Q"),
    ("replaced.device", "Q"),
    ("replaced.inode", "Q"),
    ("offset", "q"),
    ("length", "Q"),
    ("data_size", "I"),
    ("name_size", "H"),
    ("name2_size", "H"),
)


def _whole(fields: tuple[tuple[str, str], ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(form for _, form in fields))


def offsets(fields: tuple[tuple[str, str], ...]) -> dict[str, tuple[int, struct.Struct]]:
    """The offset and the struct format of each member."""
    return {
        name: (_whole(fields[:number]).size, struct.Struct("<" + form))
        for number, (name, form) in enumerate(fields)
    }


CONTROL = offsets(CONTROL_FIELDS)
ROOT_PATH_OFFSET = 256  # after the members above, with room for more
ROOT_PATH_SIZE = 1024

TABLE_OFFSET = 4096
TABLE_SLOTS = 16384
TRACE_OFFSET = TABLE_OFFSET + TABLE_SLOTS * _whole(SLOT_FIELDS).size

RECORD = _whole(RECORD_FIELDS)  # name, name2, data and padding to 8 bytes follow it
