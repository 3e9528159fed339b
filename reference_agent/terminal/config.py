"""Config: every setting of the agent with its default, and the JSON file that holds them.

    {"max_retries": 5, "model": "small-1", "provider_url": "http://localhost:8000/v1"}

Guarantees, cited as F1... by the tests:

F1  A key missing from the file has its default: a file written by an older version loads unchanged.
F2  An unknown key is reported in the log, kept, and saved again: an older version does not strip settings
    from a file that a newer version wrote.
F3  An invalid value is rejected, wherever it comes from, in one line that says where it was (file, key),
    what was expected and what was found. An existing `Config` is always valid.
F4  `save` is atomic: after a crash or a full disk the file has the old settings or the new ones, complete.
    Once `save` has returned, the new ones are durable.
F5  No setting is a secret. The file names the environment variable that holds the provider's key.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from reference_agent.logs.structured import get_logger
from reference_agent.points import persisting
from reference_agent.references import closest
from reference_agent.store.durable import sync_directory

log = get_logger(__name__)

# `description` is the "expected" part of an error message: a library's "Expected `int | null`" is not
# readable for users, and for a choice it does not list the options.
Name = Annotated[
    str, msgspec.Meta(pattern=r"^[^\0]*[^\0\s][^\0]*$", description="a string, not empty and without NUL")
]
MaybeName = Annotated[Name | None, msgspec.Meta(description="a string, not empty and without NUL, or null")]
Flag = Annotated[bool, msgspec.Meta(description="true or false")]
LARGEST = 2**63 - 1  # beyond that a database cannot store it
Count = Annotated[
    int, msgspec.Meta(ge=0, le=LARGEST, description="a whole number, 0 or more and below 2**63")
]
Positive = Annotated[
    int, msgspec.Meta(ge=1, le=LARGEST, description="a whole number, 1 or more and below 2**63")
]
MaybePositive = Annotated[
    Positive | None, msgspec.Meta(description="a whole number, 1 or more and below 2**63, or null")
]
Amount = Annotated[float, msgspec.Meta(ge=0, description="a number, 0 or more")]
MaybeAmount = Annotated[Amount | None, msgspec.Meta(description="a number, 0 or more, or null")]
MaybeSeconds = Annotated[
    Annotated[float, msgspec.Meta(gt=0)] | None,
    msgspec.Meta(description="a number of seconds greater than 0, or null"),
]
Cadence = Annotated[
    Literal["turn", "call", "periodic"], msgspec.Meta(description='"turn", "call" or "periodic"')
]
Level = Annotated[
    Literal["debug", "info", "warning", "error"],
    msgspec.Meta(description='"debug", "info", "warning" or "error"'),
]
Names = Annotated[tuple[str, ...], msgspec.Meta(description="a list of strings")]
Others = Annotated[dict[str, Any], msgspec.Meta(description="an object")]

LONGEST_VALUE_SHOWN = 60


class BadConfig(ValueError):
    """A setting or a settings file that cannot be used; the message is one line for the user."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Names end in their unit. `null` as a limit means no limit."""

    # State.
    agent_id: Name = "agent"
    state_directory: Name = ".reference-agent"

    # Model.
    provider_url: MaybeName = None  # null: an in-process model that takes notes
    provider_key_variable: Name = "OPENAI_API_KEY"  # the variable's name, never the key (F5)
    model: Name = "scripted"
    stream: Flag = True
    model_timeout_seconds: MaybeSeconds = 60.0

    # Retries.
    max_retries: Count = 3  # further attempts after the first
    retry_base_delay_ms: Count = 500  # doubled after each attempt
    retry_after_limit_seconds: MaybeSeconds = 60.0  # cap on a server's Retry-After

    # Limits.
    max_turns: Positive = 50  # per request, across all restarts
    budget_tokens: MaybePositive = None  # per session, input and output
    budget_usd: MaybeAmount = None  # per session; needs the prices
    usd_per_million_input_tokens: Amount = 0.0
    usd_per_million_output_tokens: Amount = 0.0
    tool_timeout_seconds: MaybeSeconds = 120.0
    hook_timeout_seconds: MaybeSeconds = None

    # Checkpoints. The two intervals apply to "periodic": whichever ends first.
    cadence: Cadence = "turn"
    checkpoint_every_turns: MaybePositive = 10
    checkpoint_every_seconds: MaybeSeconds = None

    # Logging.
    log_level: Level = "info"
    log_secret_names: Names = ()  # in addition to the built-in names

    # Unknown keys of the file (F2). Not a key itself.
    others: Others = {}

    def __post_init__(self) -> None:
        """Validates (F3) and converts: JSON has lists for tuples, and may write 9 for 9.0."""
        for key, kind in _KINDS.items():
            value = _checked(key, kind, getattr(self, key))
            msgspec.structs.force_setattr(self, key, value)
        self._check_together()

    def _check_together(self) -> None:
        intervals = (self.checkpoint_every_turns, self.checkpoint_every_seconds)
        if self.cadence == "periodic" and intervals == (None, None):
            raise BadConfig(
                'cadence: "periodic" expects checkpoint_every_turns or checkpoint_every_seconds, '
                "found null for both"
            )
        prices = (self.usd_per_million_input_tokens, self.usd_per_million_output_tokens)
        if self.budget_usd is not None and prices == (0, 0):
            raise BadConfig(
                "budget_usd: expects usd_per_million_input_tokens or "
                "usd_per_million_output_tokens, found 0 for both: nothing would ever be spent"
            )


_KINDS: dict[str, Any] = get_type_hints(Config, include_extras=True)
KEYS = frozenset(_KINDS) - {"others"}


def load(path: Path) -> Config:
    """Load the settings from a file. A missing or invalid file is a BadConfig."""
    content = _read(path)
    others = {key: value for key, value in content.items() if key not in KEYS}
    for key in others:
        log.warning("config.unknown_key", file=str(path), key=key, did_you_mean=_similar(key))
    known = {key: value for key, value in content.items() if key in KEYS}
    try:
        return Config(**known, others=others)
    except BadConfig as error:
        raise BadConfig(f"{path}: {error}") from None


def save(config: Config, path: Path, *, mark: str = "") -> None:
    """Save all settings, including those at their default, so that the file shows what exists (F4).

    `mark` replaces the process's id in the temporary file's name, because no seed can determine the id.
    Raises OSError if the save may have failed; the file then has either the old content or the new,
    complete.
    """
    settings = {key: getattr(config, key) for key in Config.__struct_fields__ if key in KEYS}
    everything = settings | config.others | settings  # keeps the order of the settings; known keys win
    content = msgspec.json.format(msgspec.json.encode(everything), indent=2)
    with persisting("config.save"):
        _replace(path.resolve(), content + b"\n", mark)  # resolved: a link stays a link


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read ({error.strerror})") from None
    try:
        found: object = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadConfig(f"{path}: not valid JSON ({error})") from None
    if not isinstance(found, dict):
        raise BadConfig(f"{path}: expected a JSON object, found {_shown(found)}")
    return found


def _checked(key: str, kind: Any, value: object) -> Any:
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    else:
        # NaN and infinity pass any lower bound, but JSON has neither, so they would not load again.
        if not isinstance(converted, float) or math.isfinite(converted):
            return converted
    expected = kind.__metadata__[-1].description
    raise BadConfig(f"{key}: expected {expected}, found {_shown(value)}")


def _shown(value: object) -> str:
    """As JSON where possible, on one line, truncated to a readable length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value).replace("\n", " ")
    return text if len(text) <= LONGEST_VALUE_SHOWN else f"{text[:LONGEST_VALUE_SHOWN]}..."


def _similar(key: str) -> str | None:
    return closest(key, sorted(KEYS))


def _replace(path: Path, content: bytes, mark: str) -> None:
    """Write a temporary file, fsync, rename, fsync the directory. Without the first sync a power failure
    can leave the name without its content; without the second it can bring the old file back."""
    temp = path.with_name(f".{path.name}.{mark or os.getpid()}.tmp")  # two processes never share one
    try:
        _write_synced(temp, content, _mode(path))
        temp.replace(path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _write_synced(path: Path, content: bytes, mode: int) -> None:
    with path.open("wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _mode(path: Path) -> int:
    """The permissions of the replaced file; a new file is accessible only to its owner."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600
