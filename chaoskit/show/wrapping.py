"""Text that fits the width of a terminal. Pure: text -> lines.

Lines break at spaces only. A long word, such as a path or an address, stays whole, so that it can be copied;
if it is too wide, its indentation is reduced.
"""

from __future__ import annotations

import re
import textwrap

INDENT = "  "  # of the lines that continue one


def wrapped(text: str, width: int, hang: str = INDENT) -> list[str]:
    """Continued lines are indented by `hang` more than the first."""
    return [piece for line in text.split("\n") for piece in _wrapped(line, width, hang)]


def _wrapped(line: str, width: int, hang: str) -> list[str]:
    words = line.lstrip()
    indent = line[: len(line) - len(words)]
    pieces = textwrap.wrap(
        words,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )
    return [piece if len(piece) <= width else piece.lstrip().rjust(width) for piece in pieces] or [""]


def command(text: str, width: int) -> list[str]:
    """A command that can be pasted: broken before an option, with a backslash; a long list after a comma."""
    first, *options = re.split(r" (?=--)", text)
    lines = [first]
    for option in options:
        if len(f"{lines[-1]} {option} \\") <= width:
            lines[-1] += f" {option}"
        else:
            lines.append(f"{INDENT}{option}")
    broken = [piece for line in lines[:-1] for piece in _at_commas(f"{line} \\", width)]
    return [*broken, *_at_commas(lines[-1], width)]


def _at_commas(line: str, width: int) -> list[str]:
    """The shell joins what a backslash ends with what the next line starts with."""
    comma = line.rfind(",", 0, width - 1) + 1
    if len(line) <= width or not comma:
        return [line]
    return [f"{line[:comma]}\\", *_at_commas(line[comma:], width)]


def shortened(word: str, most: int) -> str:
    """Without its middle, so that both ends can be read."""
    if len(word) <= most:
        return word
    half = (most - 3) // 2
    return f"{word[:half]}...{word[-half:]}"


def harmless(text: str) -> str:
    """Control characters become visible: text from a token, a file or a target must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def brief(message: str) -> str:
    """With the last line of a traceback instead of all of it."""
    before, mark, trace = message.partition("Traceback (most recent call last):")
    if not mark:
        return message
    error = [line for line in trace.splitlines() if line[:1].strip()][-1:]
    place = re.findall(r'File "(.+?)", line (\d+)', trace)[-1:]
    where = [f"{path}, line {number}; " for path, number in place]
    return f"{before}{''.join(error)} ({''.join(where)}chaoskit --debug shows the traceback)"
