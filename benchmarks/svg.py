"""Plots as SVG, by hand: bars and lines, legible on light and on dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 760
LABEL_WIDTH = 300
BAR_HEIGHT = 18
LINE_HEIGHT = 200
MARGIN = 12
COLOURS = ("#2a7f4f", "#3465a4", "#c17d11", "#a4343a", "#75507b")
STYLE = (
    "<style>text{font:12px sans-serif;fill:#555}.title{font-weight:bold}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}}</style>"
)
Points = Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """One bar; `text` stands behind it."""

    label: str
    value: float
    text: str
    colour: int = 0


def bars(title: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, the longest as wide as there is room."""
    most = max((row.value for row in rows), default=0.0) or 1.0
    room = WIDTH - LABEL_WIDTH - 140
    parts = []
    for number, row in enumerate(rows):
        y = 34 + number * (BAR_HEIGHT + 6)
        width = max(1.0, room * row.value / most)
        parts += [
            _text(LABEL_WIDTH - 8, y + 13, row.label, anchor="end"),
            _rectangle(LABEL_WIDTH, y, width, BAR_HEIGHT, row.colour),
            _text(LABEL_WIDTH + width + 6, y + 13, row.text),
        ]
    return _document(title, 34 + len(rows) * (BAR_HEIGHT + 6) + MARGIN, parts)


def lines(title: str, unit: str, drawn: Mapping[str, Points]) -> str:
    """Something over time; both axes begin at 0."""
    most_x = max((x for points in drawn.values() for x, _ in points), default=0.0) or 1.0
    most_y = max((y for points in drawn.values() for _, y in points), default=0.0) or 1.0
    left, top, right, bottom = 70, 34, WIDTH - 150, 34 + LINE_HEIGHT
    parts = [
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>',
        _text(left - 6, top + 10, f"{amount(most_y)}", anchor="end"),
        _text(left - 6, bottom, "0", anchor="end"),
        _text(left - 6, top + 26, unit, anchor="end"),
        _text(right, bottom + 16, f"{amount(most_x)} s", anchor="end"),
    ]
    for number, (name, points) in enumerate(drawn.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(
            f"{left + (right - left) * x / most_x:.1f},{bottom - (bottom - top) * y / most_y:.1f}"
            for x, y in points
        )
        y = top + 10 + number * 18
        parts += [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            _rectangle(right + 12, y - 9, 10, 10, number),
            _text(right + 28, y, name),
        ]
    return _document(title, bottom + 30, parts)


def amount(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _rectangle(x: float, y: float, width: float, height: float, colour: int) -> str:
    fill = COLOURS[colour % len(COLOURS)]
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height}" fill="{fill}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _document(title: str, height: float, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(title)}</title>{STYLE}",
            _text(MARGIN, 20, title, kind="title"),
            *parts,
            "</svg>",
            "",
        ]
    )
