"""`python -m chaoskit.model_server`: a misbehaving model service to point any client at.

It prints the base URL for the client, then one line for each request. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence

from chaoskit.model_server import Misbehaviour, ModelServer, Seen, misbehaviours_from
from chaoskit.model_server.faults import KINDS


def main(arguments: Sequence[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    if options.misbehave is None:
        dealt = misbehaviours_from(options.seed, requests=options.requests)
    else:
        dealt = options.misbehave
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(ModelServer(dealt, port=options.port, on_request=tell)))


async def serve(server: ModelServer) -> None:
    async with server:
        _say(server.url)
        await asyncio.Event().wait()


def tell(seen: Seen) -> None:
    outcome = seen.refused or (seen.fault.kind if seen.fault else "sound")
    _say(f"request {seen.number}: {outcome}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaoskit.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: 0, a free port")
    parser.add_argument("--seed", type=int, default=0, help="determines which requests fail, and how")
    parser.add_argument(
        "--requests",
        type=int,
        default=1000,
        metavar="N",
        help="after N requests, answer all correctly (default: %(default)s)",
    )
    parser.add_argument(
        "--misbehave", type=_kinds, metavar="KIND,...", help="instead of a seed: sound, " + ", ".join(KINDS)
    )
    return parser


def _kinds(text: str) -> list[Misbehaviour | None]:
    names = text.split(",")
    unknown = [name for name in names if name not in {"sound", *KINDS}]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"expected some of sound, {', '.join(KINDS)}; found {', '.join(map(repr, unknown))}"
        )
    return [None if name == "sound" else Misbehaviour(name) for name in names]  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
