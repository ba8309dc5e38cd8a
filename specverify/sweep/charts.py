"""Pictures for the page as inline SVG in its colours: they follow dark mode and scale with the column they stand in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 440, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 14, 40


@dataclass(frozen=True)
class Point:
    """A measured value with its spread, and the closed form's value where there is one. at: place on the x axis."""

    at: float
    measured: float
    low: float
    high: float
    theory: float | None = None


@dataclass(frozen=True)
class Bar:
    """One line of a chart whose places have names."""

    label: str
    measured: float
    low: float
    high: float
    theory: float | None = None


def curve_chart(
    points: Sequence[Point],
    *,
    across: str,
    label: str,
    unit: str = "x",
    curve: Sequence[tuple[float, float]] = (),
    best: float | None = None,
    level: float = 1.0,
    top: float | None = None,
) -> str:
    """Dots with whiskers over numbers, a line of theory through (x, y) pairs, a ring around `best`, a dashed level."""
    highest = top or _nice(max([p.high for p in points] + [y for _, y in curve] + [level]))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    to_x = width / (max(p.at for p in points) + 0.5)

    def x(value: float) -> float:
        return _LEFT + value * to_x

    def y(value: float) -> float:
        return _TOP + (1.0 - min(value, highest) / highest) * height

    parts = [_text((_LEFT + _WIDTH) / 2, _HEIGHT - 6, across)]
    for value in _ticks(highest):
        parts.append(_line("grid", _LEFT, y(value), _WIDTH - _RIGHT, y(value)))
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:g}{unit}", anchor="end"))
    parts += [_text(x(p.at), _HEIGHT - _BOTTOM + 16, f"{p.at:g}") for p in points]
    parts.append(_line("one", _LEFT, y(level), _WIDTH - _RIGHT, y(level)))
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in curve if b <= highest)
    parts.append(f'<polyline class="theory" points="{line}"/>')
    for p in points:
        parts.append(_line("spread", x(p.at), y(p.low), x(p.at), y(p.high)))
        parts.append(_dot(x(p.at), y(p.measured), f"{p.at:g}: measured {p.measured:.2f}{unit}"))
        if p.at == best:
            parts.append(f'<circle class="best" cx="{x(p.at):.1f}" cy="{y(p.measured):.1f}" r="9"/>')
    return _svg("".join(parts), label, _WIDTH, _HEIGHT)


def bar_chart(bars: Sequence[Bar], *, label: str, unit: str = "x", level: float | None = 1.0) -> str:
    """One line per bar: its name, a dot with whiskers, a tick where theory has it, and the value in figures."""
    width, left, right, line = 330, 154, 42, 24
    bottom = line * len(bars)
    highest = _nice(max([b.high for b in bars] + [b.theory or 0.0 for b in bars] + [level or 0.0]))

    def x(value: float) -> float:
        return left + min(value, highest) / highest * (width - left - right)

    parts = []
    for value in _ticks(highest)[::2]:
        parts.append(_line("grid", x(value), 0, x(value), bottom + 2))
        parts.append(_text(x(value), bottom + 16, f"{value:g}{unit}"))
    if level is not None:
        parts.append(_line("one", x(level), 0, x(level), bottom + 2))
    for index, bar in enumerate(bars):
        y = line * (index + 0.5)
        parts.append(_text(left - 10, y + 4, bar.label, anchor="end", kind="name"))
        parts.append(_line("spread", x(bar.low), y, x(bar.high), y))
        parts.append(_dot(x(bar.measured), y, f"{bar.label}: measured {bar.measured:.3f}{unit}"))
        if bar.theory is not None:
            parts.append(_line("tick", x(bar.theory), y - 8, x(bar.theory), y + 8))
        parts.append(_text(width - 2, y + 4, f"{bar.measured:.2f}{unit}", anchor="end", kind="name"))
    return _svg("".join(parts), label, width, bottom + 22)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _dot(x: float, y: float, title: str) -> str:
    return f'<circle class="measured" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(title)}</title></circle>'


def _ticks(highest: float) -> list[float]:
    step = _step(highest)
    return [step * n for n in range(round(highest / step) + 1)]


def _nice(value: float) -> float:
    """The next round number above: the axis ends on a tick."""
    step = _step(value)
    return math.ceil(value / step - 1e-9) * step


def _step(top: float) -> float:
    rough = max(top, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)


def _svg(content: str, label: str, width: float, height: float) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">{content}</svg>'
