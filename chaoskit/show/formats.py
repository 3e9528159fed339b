"""The formats of a certificate: each declared once, with the option of the command line that writes it."""

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
    Format("markdown", "As Markdown.", lambda made, _path: pages.markdown(made)),
    Format("html", "As one self-contained page.", lambda made, _path: pages.html(made)),
    Format(
        "badge",
        "A badge: FILE.svg, else the JSON that shields.io reads from an address.",
        lambda made, path: pages.badge_svg(made) if path.suffix == ".svg" else pages.badge_json(made),
    ),
    Format("junit", "A test case per claim and tier.", lambda made, _path: pages.junit(made)),
)
