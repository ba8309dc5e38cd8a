"""Small pictures for the HTML page, as inline SVG that follows the page's colours.

A bar chart of a dozen rectangles needs no plotting library at run time, and none could follow the reader's dark mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _MAX_BARS = 560, 160, 40


def law_plot(details: Mapping[str, Any]) -> str:
    """Observed and wanted law side by side, from the details `observed` and `wanted` where both are laws."""
    observed, wanted = details.get("observed"), details.get("wanted")
    if observed is None or wanted is None or not (_is_law(observed) and _is_law(wanted)):
        return ""
    if len(observed) != len(wanted):
        return ""
    labels = [escape(str(label)) for label in details.get("labels") or range(len(wanted))]
    rows = list(zip(labels, observed, wanted, strict=True))[:_MAX_BARS]
    top = max(max(float(o), float(w)) for _, o, w in rows) or 1.0
    slot = _WIDTH / len(rows)
    bars = "".join(
        _bar(i * slot + slot * 0.1, slot * 0.38, float(w) / top, "wanted", f"{label}: wanted {float(w):.3f}")
        + _bar(i * slot + slot * 0.5, slot * 0.38, float(o) / top, "observed", f"{label}: observed {float(o):.3f}")
        + f'<text x="{(i + 0.5) * slot:.1f}" y="{_HEIGHT + 14}" text-anchor="middle">{label}</text>'
        for i, (label, o, w) in enumerate(rows)
    )
    bars += '<text x="0" y="-2">grey: wanted, red: observed</text>'
    return _svg(bars, "observed beside wanted probability of each token", _HEIGHT + 20)


def margin_plot(figures: Mapping[str, Any]) -> str:
    """Evidence over tokens seen, from `evidence_curve` ([[tokens, log_e], ...]) and `evidence_limit`."""
    curve: Sequence[Sequence[float]] = figures.get("evidence_curve") or ()
    limit = figures.get("evidence_limit")
    if len(curve) < 2 or limit is None:
        return ""
    last = float(curve[-1][0]) or 1.0
    low = min(0.0, *(float(e) for _, e in curve))
    high = max(float(limit), *(min(float(e), 2.0 * float(limit)) for _, e in curve))

    def y(value: float) -> float:
        return _HEIGHT * (1.0 - (min(value, high) - low) / (high - low))

    points = " ".join(f"{float(n) / last * _WIDTH:.1f},{y(float(e)):.1f}" for n, e in curve)
    lines = (
        f'<line class="limit" x1="0" x2="{_WIDTH}" y1="{y(float(limit)):.1f}" y2="{y(float(limit)):.1f}"/>'
        f'<polyline class="curve" points="{points}"/>'
        f'<text x="{_WIDTH}" y="{y(float(limit)) - 4:.1f}" text-anchor="end">alarm at log E = {float(limit):.1f}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT + 14}" text-anchor="end">{last:,.0f} tokens</text>'
    )
    return _svg(lines, "evidence against the claim over the tokens seen", _HEIGHT + 20)


def _is_law(value: Any) -> bool:
    """Whether value is a list of at least two numbers; many findings have one number or a word there."""
    return isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(x, (int, float)) for x in value)


def _bar(x: float, width: float, share: float, kind: str, title: str) -> str:
    height = max(share * _HEIGHT, 0.5)
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{title}</title></rect>"
    )


def _svg(content: str, label: str, height: int) -> str:
    return f'<svg viewBox="-4 -12 {_WIDTH + 8} {height + 14}" role="img" aria-label="{label}">{content}</svg>'
