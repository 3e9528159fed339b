"""Config: every setting of the agent, with its default; and the JSON file that holds them.

    {"max_retries": 5, "model": "small-1", "provider_url": "http://localhost:8000/v1"}

Guarantees, cited as F1... from the tests:

F1  A key that the file lacks has its default: a file written by an older version loads as it is.
F2  A key that this version does not know is reported in the log, kept, and saved again: a file that
    a newer version wrote is not made poorer by an older one.
F3  A value that makes no sense is refused, wherever it comes from, in one line that says where it
    was (file, key), what was expected and what was there. A `Config` that exists makes sense.
F4  `save` is all or nothing: after a crash or a full disk the file has the old settings or the new
    ones, whole; and it has the new ones for good once `save` has returned.
F5  No secret is a setting. The file names the environment variable that holds the provider's key.
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

# `description` is what a refusal says was expected: a library's "Expected `int | null`" is not for
# people, and for a choice it does not list what there is to choose from.
Text = Annotated[str, msgspec.Meta(description="a text")]
MaybeText = Annotated[str | None, msgspec.Meta(description="a text, or null")]
Flag = Annotated[bool, msgspec.Meta(description="true or false")]
Count = Annotated[int, msgspec.Meta(ge=0, description="a whole number, 0 or more")]
Positive = Annotated[int, msgspec.Meta(ge=1, description="a whole number, 1 or more")]
MaybePositive = Annotated[Positive | None, msgspec.Meta(description="a whole number, 1 or more, or null")]
Amount = Annotated[float, msgspec.Meta(ge=0, description="a number, 0 or more")]
MaybeAmount = Annotated[Amount | None, msgspec.Meta(description="a number, 0 or more, or null")]
MaybeSeconds = Annotated[
    Annotated[float, msgspec.Meta(gt=0)] | None,
    msgspec.Meta(description="a number of seconds above 0, or null"),
]
Cadence = Annotated[
    Literal["turn", "call", "periodic"], msgspec.Meta(description='"turn", "call" or "periodic"')
]
Level = Annotated[
    Literal["debug", "info", "warning", "error"],
    msgspec.Meta(description='"debug", "info", "warning" or "error"'),
]
Names = Annotated[tuple[str, ...], msgspec.Meta(description="a list of texts")]
Others = Annotated[dict[str, Any], msgspec.Meta(description="an object")]

LONGEST_VALUE_SHOWN = 60


class BadConfig(ValueError):
    """A setting, or a file of settings, that cannot be used; its text is one line for the user."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Names end in their unit. `null` in a limit means that there is none."""

    # Where it keeps its state.
    agent_id: Text = "agent"
    state_directory: Text = ".reference-agent"

    # Whom it asks.
    provider_url: MaybeText = None  # null: a model in this process, which takes notes
    provider_key_variable: Text = "OPENAI_API_KEY"  # the variable's name, never the key (F5)
    model: Text = "scripted"
    stream: Flag = True
    model_timeout_seconds: MaybeSeconds = 60.0

    # When it asks again.
    max_retries: Count = 3  # further attempts after the first
    retry_base_delay_ms: Count = 500  # doubled after each attempt
    retry_after_limit_seconds: MaybeSeconds = 60.0  # of what a server asks for by Retry-After

    # When it stops.
    max_turns: Positive = 50  # of one request, in all lives together
    budget_tokens: MaybePositive = None  # of one session, in and out
    budget_usd: MaybeAmount = None  # of one session; needs the prices
    usd_per_million_input_tokens: Amount = 0.0
    usd_per_million_output_tokens: Amount = 0.0
    tool_timeout_seconds: MaybeSeconds = 120.0
    hook_timeout_seconds: MaybeSeconds = None

    # When it writes a checkpoint. The two intervals count for "periodic": whichever ends first.
    cadence: Cadence = "turn"
    checkpoint_every_turns: MaybePositive = 10
    checkpoint_every_seconds: MaybeSeconds = None

    # What it tells.
    log_level: Level = "info"
    log_secret_names: Names = ()  # in addition to those that the log knows

    # What the file had besides (F2). Not a key itself.
    others: Others = {}

    def __post_init__(self) -> None:
        """F3. Converts as well: JSON has lists for tuples, and may say 9 for 9.0."""
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
    """The settings in a file. A file that is missing or makes no sense is a BadConfig."""
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
    """All settings, also those that are at their default, so that one sees what there is (F4).

    `mark` is in the temporary file's name instead of the process's id, which no seed can decide.
    Raises OSError when that is not certain; the file is then the old one or the new one, whole.
    """
    settings = {key: getattr(config, key) for key in Config.__struct_fields__ if key in KEYS}
    everything = settings | config.others | settings  # in this order, and ours win
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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: expected JSON, found something else ({error})") from None
    if not isinstance(found, dict):
        raise BadConfig(f"{path}: expected a JSON object, found {_shown(found)}")
    return found


def _checked(key: str, kind: Any, value: object) -> Any:
    try:
        converted = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    else:
        # NaN and infinity pass any lower bound, and JSON has neither: they would not come back.
        if not isinstance(converted, float) or math.isfinite(converted):
            return converted
    expected = kind.__metadata__[-1].description
    raise BadConfig(f"{key}: expected {expected}, found {_shown(value)}")


def _shown(value: object) -> str:
    """As JSON where it is JSON, on one line, and not longer than a line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value).replace("\n", " ")
    return text if len(text) <= LONGEST_VALUE_SHOWN else f"{text[:LONGEST_VALUE_SHOWN]}..."


def _similar(key: str) -> str | None:
    return closest(key, sorted(KEYS))


def _replace(path: Path, content: bytes, mark: str) -> None:
    """Temp, fsync, rename, directory fsync. Without the first sync a power loss can leave the name
    without its content, without the second it can bring the old file back."""
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
    """The permissions of the file that is replaced; a new one is its owner's alone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600
