"""`reference-agent serve` as a process of its own: started, killed, started again."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

import httpx2
from chaoskit_scenarios.sessions.http_target import NO_TLS

TIMEOUT = 60


class Server:
    """One process. `first` is what it printed once it listened; `errors` is a file with its stderr."""

    def __init__(self, state, *args, port=0, code=None, **how):
        """`how`: further arguments of Popen, such as `umask`."""
        start = ["-c", code] if code else ["-m", "reference_agent.terminal.cli"]
        command = [sys.executable, *start, "serve", "--state", str(state), "--port", str(port), *args]
        state.parent.mkdir(exist_ok=True)
        self.errors = state.with_name(f"{state.name}.stderr")
        with self.errors.open("a") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=without_proxies(), **how
            )
        self.first = self.process.stdout.readline()
        found = re.match(r"listening on (http://\S+:\d+); (boot_\w+): ", self.first)
        if found is None:
            self.kill()
            raise RuntimeError(f"{self.first!r}, {self.errors.read_text()}")
        self.url, self.boot = found.groups()

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, how=signal.SIGTERM):
        """Its exit code."""
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
        with self.process:  # closes the pipe
            return self.process.wait(TIMEOUT)

    def client(self, **how):
        return httpx2.Client(base_url=self.url, timeout=TIMEOUT, verify=NO_TLS, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.returncode is None:
            self.kill()


def without_proxies():
    return {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
