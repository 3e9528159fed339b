"""Compiles interposer.c: for hatch_build.py into a wheel, for `interposer` if the wheel has no library.

hatch_build.py loads this file by its path, before chaoskit and its dependencies are installed: standard
library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess

SOURCE_NAME = "interposer.c"
LIBRARY_NAME = "_interposer.so"
# -z initfirst: a program started under an inherited filter needs the handler before the constructor of
# any other library makes a system call.
COMPILE_FLAGS = ("-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,initfirst")
LINK_FLAGS = ("-ldl",)


def find_compiler() -> str | None:
    """$CC, or the first compiler that is found."""
    named = os.environ.get("CC")
    candidates = [named] if named else ["cc", "gcc", "clang"]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def compile_library(compiler: str, source: str, target: str, *more_flags: str) -> None:
    """Raises RuntimeError with the command and the compiler's messages."""
    command = [compiler, *COMPILE_FLAGS, *more_flags, "-o", target, source, *LINK_FLAGS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot build the interposer: {' '.join(command)}\n{done.stderr}")
