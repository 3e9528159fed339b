"""The formats of a certificate, each declared once with its command-line option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from chaoskit.certify.certificate import Certificate
from chaoskit.show import pages


class Format(msgspec.Struct, frozen=True):
    name: str  # the option is --name FILE
    summary: str
    render: Callable[[Certificate, Path], str]


FORMATS = (
    Format("markdown", "Write the certificate as Markdown.", lambda made, _path: pages.markdown(made)),
    Format("html", "Write the certificate as a self-contained page.", lambda made, _path: pages.html(made)),
    Format(
        "badge",
        "Write a badge: SVG if FILE ends in .svg, else JSON for a shields.io endpoint.",
        lambda made, path: pages.badge_svg(made) if path.suffix == ".svg" else pages.badge_json(made),
    ),
    Format(
        "junit", "Write JUnit XML, a test case per claim and tier.", lambda made, _path: pages.junit(made)
    ),
)
