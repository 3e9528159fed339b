"""Compiles the interposer into the wheel.

Named in pyproject.toml under `targets.wheel.hooks.custom`: at the global level the library would leak
into the sdist. Without a compiler the wheel is pure Python and still installs; `chaoskit doctor`
then reports what is missing. An editable install gets no library from here: the package builds one in the
user's cache on first use (chaoskit/disk/interposer.py). chaoskit/disk/compiling.py has the compiler flags.
"""

from __future__ import annotations

import runpy
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PLACE = Path("chaoskit", "disk")


class InterposerHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        place = Path(self.root, PLACE)
        compiling = runpy.run_path(str(place / "compiling.py"))
        compiler = compiling["find_compiler"]()
        if version == "editable" or compiler is None or not sys.platform.startswith("linux"):
            return
        self._scratch = tempfile.TemporaryDirectory()
        target = Path(self._scratch.name, compiling["LIBRARY_NAME"])
        try:
            compiling["compile_library"](compiler, str(place / compiling["SOURCE_NAME"]), str(target))
        except RuntimeError as error:
            self.app.display_warning(f"the wheel is built without the interposer: {error}")
            return
        build_data["force_include"][str(target)] = str(PLACE / target.name)
        build_data["pure_python"] = False
        # The library links only against libc: it works with any Python 3, but only on this platform.
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del version, build_data, artifact_path
        if self._scratch is not None:
            self._scratch.cleanup()
