"""The timelines of experiments as a page that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from devtools import picture, report, tracks
from devtools.outcome import Outcome

STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #2a9d5c; --late: #d99a1e;
        --lost: #d1345b; --work: #4a7fd4; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 90rem;
       padding: 0 1rem; }
h1 { font-size: 1.35rem; } h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--line); }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); gap: 2rem; }
.track { display: grid; grid-template-columns: 9.5rem 1fr; align-items: center; min-height: 1.45rem;
         border-bottom: 1px solid var(--line); }
.bars { position: relative; height: 1.05rem; }
.bars span { position: absolute; top: 0; bottom: 0; min-width: 2px; border-radius: 2px; }
.good { background: var(--good); } .late { background: var(--late); }
.lost { background: var(--lost); } .work { background: var(--work); }
.ruler { position: relative; height: 1.3rem; font-size: .8rem; }
.ruler span { position: absolute; }
.legend span { display: inline-block; width: .9rem; height: .9rem; border-radius: 2px;
               margin: 0 .35rem 0 1rem; vertical-align: -.1rem; }
details { margin-top: 1rem; } pre { overflow-x: auto; font-size: .85rem; }
"""
LEGEND = (
    (tracks.GOOD, "until its return"),
    (tracks.LATE, "held, then answered"),
    (tracks.LOST, "lost"),
    (tracks.WORK, "packages change"),
)


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page of one pair of versions: a table, and the timelines side by side."""
    first = outcomes[0]
    title = f"A highstate updates salt-minion {first.old} → {first.new}, under load"
    last = max(map(tracks.end, outcomes))
    legend = "".join(f'<span class="{kind}"></span>{escape(text)}' for kind, text in LEGEND)
    sides = "".join(f"<section>{_side(out, last)}</section>" for out in outcomes)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f'</title>\n<meta name="viewport" content="width=device-width">\n<style>{STYLE}</style>'
        f"</head>\n<body><h1>{escape(title)}</h1>\n{_table(outcomes)}\n"
        f'<p class="legend">{legend}</p>\n<div class="sides">{sides}</div></body></html>\n'
    )


def _table(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for number, (name, cells) in enumerate(picture.rows(outcomes)):
        tag = "td" if number else "th"
        told = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        rows.append(f"<tr><th>{escape(name)}</th>{told}</tr>")
    return f"<table>{''.join(rows)}</table>"


def _side(out: Outcome, last: float) -> str:
    lines = [f"<h2>{escape(report.LABELS[out.extension])}</h2>"]
    marks = "".join(
        f'<span style="left:{100 * second / last:.2f}%">{second} s</span>'
        for second in range(0, int(last), _step(last))
    )
    lines.append(f'<div class="track"><span></span><div class="ruler">{marks}</div></div>')
    for track in tracks.every(out):
        bars = "".join(_bar(span, last) for span in track.spans)
        name = escape(track.name)
        lines.append(f'<div class="track"><span>{name}</span>')
        lines.append(f'<div class="bars">{bars}</div></div>')
    wrong = out.verdict()
    said = "".join(f"<li>{escape(text)}</li>" for text in wrong) or "<li>nothing lost</li>"
    moments = escape("\n".join(report.timeline(out)))
    lines.append(f"<details><summary>Verdict: {len(wrong)} things wrong</summary><ul>{said}</ul>")
    lines.append(
        f"</details><details><summary>Every moment</summary><pre>{moments}</pre></details>"
    )
    return "\n".join(lines)


def _bar(span: tracks.Span, last: float) -> str:
    left, width = 100 * span.begin / last, 100 * max(0.0, span.end - span.begin) / last
    place = f"left:{left:.2f}%;width:{min(width, 100 - left):.2f}%"
    return f'<span class="{span.kind}" style="{place}" title="{escape(span.text)}"></span>'


def _step(last: float) -> int:
    return next(each for each in (10, 20, 30, 60, 120, 300, 600, 3600) if last / each <= 8)
