"""How interposer.c is compiled: by hatch_build.py into a wheel, by `interposer` where there is none.

hatch_build.py loads this file by its path, when chaoskit and its dependencies are not installed yet:
standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess

SOURCE_NAME = "interposer.c"
LIBRARY_NAME = "_interposer.so"
# -z initfirst: a program started under an inherited filter must have the handler before any other
# library's constructor writes something.
COMPILE_FLAGS = ("-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,initfirst")
LINK_FLAGS = ("-ldl",)


def find_compiler() -> str | None:
    """$CC, or the first compiler that is found."""
    named = os.environ.get("CC")
    candidates = [named] if named else ["cc", "gcc", "clang"]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def compile_library(compiler: str, source: str, target: str, *more_flags: str) -> None:
    """A RuntimeError with the command and the compiler's messages if it fails."""
    command = [compiler, *COMPILE_FLAGS, *more_flags, "-o", target, source, *LINK_FLAGS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build the interposer: {' '.join(command)}\n{done.stderr}")
