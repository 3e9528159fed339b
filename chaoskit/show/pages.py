"""Certificates as Markdown, as a self-contained HTML page, as a badge, as JUnit XML. Pure: data -> text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from chaoskit.certify.certificate import Certificate, CertifiedFinding, Sign
from chaoskit.model import Verdict
from chaoskit.search.result import Coverage
from chaoskit.search.tiers import default_tiers
from chaoskit.show.wrapping import harmless

COLOUR = {
    "HOLDS": "#2e7d32",
    "VIOLATED": "#c62828",
    "UNKNOWN": "#b26a00",
    "holds": "#2e7d32",
    "hazard": "#ad6200",
    "unknown": "#b26a00",
}


# --- Markdown


def markdown(certificate: Certificate) -> str:
    c = _without_markup(certificate)
    lines = [f"# {c.target}: {c.verdict.value}", "", f"{c.summary}.", "", *facts(c), ""]
    lines += _table(
        ["claim", *c.columns],
        [[claim, *(_bold(c.sign(claim, tier)) for tier in c.columns)] for claim in c.claims],
    )
    lines += [
        "",
        *_table(
            ["covered", *c.tiers],
            [
                ["crashes", *(_covered(c.coverage[tier]) for tier in c.tiers)],
                ["crashes of the long workload", *(str(c.coverage[tier].extra) for tier in c.tiers)],
                ["confirmed by real crashes", *(str(c.coverage[tier].confirmed) for tier in c.tiers)],
            ],
        ),
    ]
    for title, findings in (("Promises broken", c.broken), ("Hazards", c.hazards)):
        if findings:
            lines += ["", f"## {title}", *(line for f in findings for line in _finding(f))]
    if c.reasons():
        lines += ["", "## Unknown", *(f"- {reason}" for reason in c.reasons())]
    if c.suite:
        lines += ["", "## The vendor's own suite", "", f"{c.suite['name']}: {c.suite['verdict']}"]
    return "\n".join(lines) + "\n"


def _without_markup(c: Certificate) -> Certificate:
    """Certificates may come from others: their text must not become tags, links, headings or escapes."""
    return msgspec.convert(_plain(msgspec.to_builtins(c)), Certificate)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        text = harmless(" ".join(value.splitlines()) if "\n" in value or "\r" in value else value)
        return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text).replace("](", "] (")
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def facts(c: Certificate) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in c.versions.items())
    settings = ", ".join(f"{name}={value}" for name, value in c.settings.items()) or "not reported"
    saves = f"{c.saves} save{'s' * (c.saves != 1)}"
    return [
        f"- versions: {versions}",
        f"- settings in force: {settings}",
        (f"- writes: {_some(c.files)}; {c.operations / max(1, c.saves):.1f} disk operations per save"),
        f"- style: {c.style}; one acknowledgement covers {c.unit}",
        f"- seed {c.seed}, {saves}, {c.date}, chaoskit {c.chaoskit}, {c.seconds:.0f} s{_of_which(c)}",
    ]


def _some(files: Sequence[str]) -> str:
    more = f" and {len(files) - 8} more" if len(files) > 8 else ""
    return (", ".join(files[:8]) or "nothing") + more


def _of_which(c: Certificate) -> str:
    """The part of the time in which nothing was tested, where it is worth a word."""
    parts = {"environment": c.environment_seconds, "imports": c.starting_seconds}
    worth = [f"{name} {seconds:.0f} s" for name, seconds in parts.items() if seconds >= 1]
    return f" ({', '.join(worth)})" if worth else ""


def _bold(sign: str) -> str:
    return f"**{sign}**" if sign == "VIOLATED" else sign


def _covered(part: Coverage) -> str:
    return f"{part.states}, exhaustive" if part.complete else str(part.states)


def _finding(f: CertifiedFinding) -> list[str]:
    promise = (
        f"Promised: {f.promise} ({f.where})."
        if f.promise is not None
        else ("The library does not promise this: it is a hazard, not a broken promise.")
    )
    lines = [
        "",
        f"**{f.claim}/{f.kind}** [{f.tier}], {f.times} run{'s' * (f.times != 1)}: {f.message}",
        "",
        f"Fault: {f.fault} at {f.point}. {promise}",
        "",
    ]
    if f.hint:
        lines += ["```", *f.hint, "```", ""]
    return [*lines, f"    chaoskit replay {f.repro}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(word) for word in row) + " |" for row in lines]


def _cell(word: str) -> str:
    return word.replace("|", "\\|").replace("\n", " ")


# --- HTML

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 } th, td { border: 1px solid #ddd; padding: .3rem .6rem }
th, td { text-align: left } th { background: #f5f5f5; font-weight: 600 }
code, pre { font: 13px/1.4 ui-monospace, monospace }
pre { background: #f7f7f7; padding: .7rem; overflow-x: auto; white-space: pre-wrap; word-break: break-all }
.verdict { color: #fff; padding: .1rem .5rem; border-radius: .3rem }
"""


def html(certificate: Certificate) -> str:
    c = certificate
    body = [
        f"<h1>{escape(c.target)} {_verdict(c.verdict.value)}</h1>",
        f"<p>{escape(c.summary)}.</p>",
        "<ul>",
    ]
    body += [f"<li>{escape(fact.removeprefix('- '))}</li>" for fact in facts(c)]
    body += [
        "</ul>",
        _html_table(
            ["claim", *c.columns],
            [[escape(claim), *(_verdict(c.sign(claim, tier)) for tier in c.columns)] for claim in c.claims],
        ),
    ]
    body.append(
        _html_table(["covered", *c.tiers], [["crashes", *(_covered(c.coverage[tier]) for tier in c.tiers)]])
    )
    for title, findings in (("Promises broken", c.broken), ("Hazards", c.hazards)):
        if findings:
            body += [f"<h2>{title}</h2>", *map(_html_finding, findings)]
    if c.reasons():
        body += ["<h2>Unknown</h2><ul>", *(f"<li>{escape(u)}</li>" for u in c.reasons()), "</ul>"]
    if c.suite:
        body += [
            (
                f"<h2>The vendor's own suite</h2><p>{escape(c.suite['name'])}: "
                f"{escape(str(c.suite['verdict']))}</p>"
            )
        ]
    return _page(f"{c.target}: {c.verdict.value}", body)


def _html_finding(f: CertifiedFinding) -> str:
    promise = f"Promised: {f.promise} ({f.where})" if f.promise is not None else "Not promised: a hazard"
    hint = f"<pre>{escape(chr(10).join(f.hint))}</pre>" if f.hint else ""
    return (
        f"<h3>{escape(f.claim)}/{escape(f.kind)} <small>[{escape(f.tier)}]</small></h3>"
        f"<p>{escape(f.message)}</p><p>{escape(f.fault)} at {escape(f.point)}. {escape(promise)}</p>"
        f"{hint}<pre>chaoskit replay {escape(f.repro)}</pre>"
    )


def _verdict(word: str) -> str:
    if word not in COLOUR:
        return f'<span style="color:#9e9e9e">{escape(word)}</span>'
    return f'<span class="verdict" style="background:{COLOUR[word]}">{word}</span>'


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are already HTML."""
    title = "".join(f"<th>{escape(word)}</th>" for word in head)
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{title}</tr>{''.join(lines)}</table>"


def _page(title: str, body: Sequence[str]) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


# --- badges and JUnit


def badge_json(certificate: Certificate) -> str:
    """JSON for a shields.io endpoint."""
    colour = {"HOLDS": "brightgreen", "VIOLATED": "red"}.get(certificate.verdict.value, "lightgrey")
    return (
        json.dumps(
            {"schemaVersion": 1, "label": "chaoskit", "message": _badge_words(certificate), "color": colour}
        )
        + "\n"
    )


def badge_svg(certificate: Certificate) -> str:
    label, message = "chaoskit", _badge_words(certificate)
    left, right = 8 + 7 * len(label), 8 + 7 * len(message)
    colour = COLOUR[certificate.verdict.value]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img"'
        f' aria-label="{escape(label)}: {escape(message)}">'
        f'<rect width="{left}" height="20" fill="#555"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,sans-serif" font-size="11">'
        f'<text x="4" y="14">{escape(label)}</text>'
        f'<text x="{left + 4}" y="14">{escape(message)}</text></g></svg>\n'
    )


def _badge_words(certificate: Certificate) -> str:
    broken = sorted({f.claim for f in certificate.broken})
    if broken:
        return f"breaks {', '.join(broken)}"
    if certificate.verdict is Verdict.VIOLATED:  # in a run without faults, or in a cell without a finding
        return "violated"
    hazards = len({f.claim for f in certificate.hazards})
    more = f", {hazards} hazard{'s' * (hazards != 1)}" if hazards else ""
    return f"{certificate.verdict.value.lower()}{more}"


def junit(certificate: Certificate) -> str:
    """One test case per cell, by the rule of the certificate: a broken promise fails, an unknown cell is an
    error, a cell that was not measured is skipped; a hazard passes, with its details as output. The last case
    is the verdict itself: an error if it is UNKNOWN."""
    c = certificate
    cells = [(claim, tier, c.sign(claim, tier)) for claim in c.claims for tier in c.columns]
    cases = [(f"{claim} [{tier}]", _junit_body(c, claim, tier, sign)) for claim, tier, sign in cells]
    cases.append(("verdict", _error(c.headline(), c.reasons()) if c.verdict is Verdict.UNKNOWN else ""))
    wrong = sum(body.startswith("<failure") for _, body in cases)
    errors = sum(body.startswith("<error") for _, body in cases)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuite name={_attribute(c.target)} tests="{len(cases)}" failures="{wrong}" errors="{errors}">',
    ]
    for name, body in cases:
        lines.append(f"<testcase classname={_attribute(c.target)} name={_attribute(name)}>")
        lines += [body, "</testcase>"]
    return "\n".join([*lines, "</testsuite>"]) + "\n"


def _junit_body(c: Certificate, claim: str, tier: str, sign: Sign) -> str:
    found = [f for f in c.findings if (f.claim, f.tier) == (claim, tier)]
    details = "\n".join(f"{f.message}\nreproduce: chaoskit replay {f.repro}" for f in found)
    if sign == "-":
        return '<skipped message="not measured"/>'
    if sign == "unknown":
        return _error("unknown", c.reasons())
    if sign == "hazard":
        return f"<system-out>hazard, not promised: {_text(details)}</system-out>"
    if sign == "VIOLATED":
        title = _attribute(found[0].message if found else claim)
        return f"<failure message={title}>{_text(details)}</failure>"
    return ""


def _error(message: str, reasons: Sequence[str]) -> str:
    return f"<error message={_attribute(message)}>{_text('; '.join(reasons))}</error>"


def _text(text: str) -> str:
    """XML has no way to write most control characters and lone surrogates: show them as Python does."""
    return escape("".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text))


def _attribute(text: str) -> str:
    return f'"{_text(text)}"'


# --- the scoreboard


def scoreboard_markdown(certificates: Sequence[Certificate]) -> str:
    certificates = list(map(_without_markup, certificates))
    rows = [list(map(_bold, _row(c))) for c in certificates]
    return (
        "\n".join(
            [
                "# Scoreboard",
                "",
                *_legend(),
                "",
                *_table(_head(), rows),
                "",
                *(line for c in certificates for line in _summary(c)),
            ]
        )
        + "\n"
    )


def _head() -> list[str]:
    return ["target", "versions", *default_tiers(), "promises broken", "hazards"]


def _legend() -> list[str]:
    return [
        (
            "Each cell is the worst verdict of all claims in that tier; `-` means not measured. A *promise*"
            " is stated in the library's documentation; a *hazard* is a violation of something that the"
            " library does not promise. This directory has the certificate of each row."
        )
    ]


def _row(c: Certificate) -> list[str]:
    versions = ", ".join(f"{name} {v}" for name, v in c.versions.items() if name != "python")
    return [
        c.target,
        versions or f"chaoskit {c.chaoskit}",
        *(_worst(c, tier) for tier in default_tiers()),
        ", ".join(sorted({f.claim for f in c.broken})) or "none",
        ", ".join(sorted({f.claim for f in c.hazards})) or "none",
    ]


def _worst(c: Certificate, tier: str) -> str:
    signs = {c.sign(claim, tier) for claim in c.claims}
    return next((s for s in ("VIOLATED", "unknown", "hazard", "holds") if s in signs), "-")


def _summary(c: Certificate) -> list[str]:
    states = sum(part.states for part in c.coverage.values())
    lines = [f"## {c.target}", "", f"{c.summary}: {c.headline()}. {states:,} crashes judged, {c.date}."]
    for f in c.findings[:6]:
        kind = "promise broken" if f.promise is not None else "hazard"
        lines.append(f"- {f.claim}/{f.kind} [{f.tier}], {kind}: {f.message}")
    return [*lines, ""]


def _cell_html(cell: str) -> str:
    return _verdict(cell) if cell in COLOUR else escape(cell)


def scoreboard_html(certificates: Sequence[Certificate]) -> str:
    rows = [[_cell_html(cell) for cell in _row(c)] for c in certificates]
    body = ["<h1>Scoreboard</h1>", f"<p>{escape(_legend()[0])}</p>", _html_table(_head(), rows)]
    for c in certificates:
        body.append(f"<h2>{escape(c.target)}</h2><p>{escape(c.summary)}: {escape(c.headline())}</p>")
        body += [_html_finding(f) for f in c.findings[:6]]
    return _page("chaoskit scoreboard", body)
