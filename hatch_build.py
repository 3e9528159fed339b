"""Compiles the interposer into the wheel.

Named in pyproject.toml under `targets.wheel.hooks.custom`: at the global level the library would leak
into the sdist. Without a compiler the wheel is pure Python and still installs; `chaoskit doctor`
then says what is missing. An editable install gets no library from here: the package builds its own
beside the user's cache when it is first needed (chaoskit/disk/interposer.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("chaoskit", "disk", "interposer.c")
LIBRARY = Path("chaoskit", "disk", "_interposer.so")
COMPILE = ("-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,initfirst")


class InterposerHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        compiler = next(filter(None, map(shutil.which, _compilers())), None)
        if version == "editable" or compiler is None or not sys.platform.startswith("linux"):
            return
        self._scratch = tempfile.TemporaryDirectory()
        target = Path(self._scratch.name, LIBRARY.name)
        command = [compiler, *COMPILE, "-o", str(target), str(Path(self.root, SOURCE)), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(f"the interposer was not built: {done.stderr}")
            return
        build_data["force_include"][str(target)] = str(LIBRARY)
        build_data["pure_python"] = False
        # It links against the C library alone: any Python 3, but only this platform.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if self._scratch is not None:
            self._scratch.cleanup()


def _compilers() -> list[str]:
    named = os.environ.get("CC")
    return [named] if named else ["cc", "gcc", "clang"]
