# ruff: noqa: PTH105, PTH123, PLW0108 - as people write them
"""A sound store that misbehaves in the way that the file `how` beside it names."""

import json
import os
import signal
import sys
from pathlib import Path

HOW = Path(__file__).with_name("how").read_text()


def _fork():
    if os.fork() == 0:
        return  # the child goes on, as if it were the target


IMPORTED = {
    "forks": _fork,
    "kills its parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "kills itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exits": lambda: os._exit(0),
    "raises SystemExit": lambda: sys.exit("bye"),
    "raises a surrogate": lambda: json.loads("\udc80"),
    "raises KeyboardInterrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    "recurses": lambda: IMPORTED["recurses"](),
    "closes everything": lambda: os.closerange(0, 4096),
    "hangs": signal.pause,
    "prints": lambda: print("\x1b]0;owned\x07" * 1000),
    "changes the directory": lambda: os.chdir("/"),
}
IMPORTED.get(HOW, lambda: None)()


class Store:
    saves, largest = 6, 100  # a short workload: most attacks are over before it begins

    def open(self, directory):
        self.directory = Path(directory)
        if HOW == "cannot be opened":
            raise ValueError("\x1b[2J\udc80" + "x" * 100_000)
        if HOW == "kills its parent in a life":
            os.kill(os.getppid(), signal.SIGKILL)

    def save(self, session, state):
        path = self.directory / f"{session}.json"
        aside = path.with_suffix(".aside")
        with open(aside, "w") as file:
            file.write(json.dumps(state))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        if HOW == "fails with surrogates" and state["n"] == 3:
            raise ValueError("\udc80\ud800")

    def load(self, session):
        path = self.directory / f"{session}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def records(self, session):
        return {"a": float("nan") if HOW == "shows nan" else 1}

    def settings(self):
        secret = {n: v for n, v in os.environ.items() if "SECRET" in n or "SECRET" in v}
        return {"secrets": json.dumps(secret), "home": str(Path.home() == Path(os.environ["HOME"]))}

    def close(self):
        pass
