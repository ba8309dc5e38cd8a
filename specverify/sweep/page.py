"""The sweep as one self-contained page: what to use and why first, then axis by axis, measurement beside theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from specverify.core.errors import UsageError
from specverify.sweep.advice import Advice, advice
from specverify.sweep.charts import Bar, Point, bar_chart, curve_chart
from specverify.sweep.families import WORKLOADS
from specverify.sweep.passes import PassCosts
from specverify.sweep.plan import AXES
from specverify.sweep.rows import Row
from specverify.sweep.store import Sweep

HEADINGS = (
    "acceptance", "tokens a pass", "theory", "speed-up", "quartiles", "theory", "round", "draft token", "verify",
    "best k", "plain tokens/s", "tokens/s",
)  # fmt: skip


def render_page(sweep: Sweep) -> str:
    """The page as text."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = resources.files("specverify.sweep").joinpath("page.html").read_text(encoding="utf-8")
    found = advice(sweep)
    return environment.from_string(template).render(
        about=sweep.about,
        advice=found,
        curves=[_curves(one, sweep) for one in found],
        passes=None if sweep.passes is None else _passes_view(sweep.passes),
        axes=[_axis_view(name, sweep.axis(name)) for name in AXES if sweep.axis(name)],
        headings=HEADINGS,
    )


def write_page(sweep: Sweep, path: Path) -> None:
    """Raises UsageError where path cannot be written."""
    try:
        path.write_text(render_page(sweep), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give --out another folder") from error


def figures(row: Row) -> Sequence[str]:
    """One line of a table, in the order of HEADINGS."""
    return (
        "" if row.acceptance is None else f"{row.acceptance:.3f} ± {row.acceptance_error:.3f}",
        f"{row.tokens_per_pass:.2f} ± {row.tokens_per_pass_error:.2f}",
        f"{row.tokens_per_pass_theory:.2f}",
        f"{row.speedup:.2f}x",
        f"{row.speedup_low:.2f} to {row.speedup_high:.2f}",
        f"{row.speedup_theory:.2f}x",
        f"{row.round_cost:.2f}",
        f"{row.draft_cost:.3f}",
        f"{row.verify_cost:.2f}",
        "" if row.best_k is None else str(row.best_k),
        f"{row.plain_tokens_per_second:.0f}",
        f"{row.tokens_per_second:.0f}",
    )


def _curves(one: Advice, sweep: Sweep) -> Mapping[str, Any]:
    """Speed-up and tokens per pass over k, measured and by the closed form."""
    rows = [r for r in sweep.axis("draft-length") if (r.proposer, r.workload) == (one.proposer, one.workload)]
    lengths = range(1, max(row.num_draft_tokens for row in rows) + 1)
    speeds = [Point(r.num_draft_tokens, r.speedup, r.speedup_low, r.speedup_high) for r in rows]
    tokens = [
        Point(r.num_draft_tokens, r.tokens_per_pass, r.tokens_per_pass - r.tokens_per_pass_error,
              r.tokens_per_pass + r.tokens_per_pass_error)
        for r in rows
    ]  # fmt: skip
    return {
        "title": f"{one.proposer}, {WORKLOADS[one.workload]}",
        "speed": curve_chart(
            speeds, across="draft tokens k", label=f"Speed-up over k: {_spoken_points(speeds)}",
            curve=[(k, one.theory.speedup(k)) for k in lengths], best=one.best_k or None,
        ),
        "tokens": curve_chart(
            tokens, across="draft tokens k", label=f"Tokens per pass over k: {_spoken_points(tokens)}", unit="",
            curve=[(k, one.theory.tokens(k)) for k in lengths],
        ),
    }  # fmt: skip


def _axis_view(name: str, rows: Sequence[Row]) -> Mapping[str, Any]:
    labels = [f"k {r.value}, {r.proposer}" if name == "draft-length" else r.value for r in rows]
    speed = [Bar(label, r.speedup, r.speedup_low, r.speedup_high, r.speedup_theory)
             for label, r in zip(labels, rows, strict=True)]  # fmt: skip
    tokens = [
        Bar(label, r.tokens_per_pass, r.tokens_per_pass - r.tokens_per_pass_error,
            r.tokens_per_pass + r.tokens_per_pass_error, r.tokens_per_pass_theory)
        for label, r in zip(labels, rows, strict=True)
    ]  # fmt: skip
    accepted = [
        Bar(label, r.acceptance, r.acceptance - r.acceptance_error, r.acceptance + r.acceptance_error)
        for label, r in zip(labels, rows, strict=True) if r.acceptance is not None and r.acceptance_error is not None
    ]  # fmt: skip
    charts = [("speed-up against plain decoding", speed, "x", 1.0), ("tokens per target pass", tokens, "", 1.0),
              ("acceptance of a judged draft token", accepted, "", None)]  # fmt: skip
    return {
        "name": name,
        "title": AXES[name].title,
        "note": AXES[name].reported,
        "charts": [] if name == "draft-length" else [
            (title, bar_chart(bars, label=f"{title}: {_spoken(bars, unit)}", unit=unit, level=level))
            for title, bars, unit, level in charts if bars
        ],
        "rows": [(label, figures(row)) for label, row in zip(labels, rows, strict=True)],
    }  # fmt: skip


def _passes_view(passes: PassCosts) -> Mapping[str, Any]:
    points = [Point(p.num_tokens, p.relative, p.relative, p.relative) for p in passes.passes]
    floor = passes.share_of_floor
    return {
        "costs": passes,
        "svg": curve_chart(
            points, across="tokens in one target pass", unit="", level=floor, top=max(4.0, points[-1].measured * 1.2),
            curve=[(float(n), float(n)) for n in range(1, 17)],
            label=f"Cost by tokens: {_spoken_points(points)}",
        ),
        "rows": [(p.num_tokens, f"{p.seconds * 1e3:.3g}", f"{p.relative:.2f}", f"{p.relative / p.num_tokens:.2f}")
                 for p in passes.passes],
    }  # fmt: skip


def _spoken(bars: Sequence[Bar], unit: str) -> str:
    return "; ".join(f"{bar.label} {bar.measured:.2f}{unit}" for bar in bars)


def _spoken_points(points: Sequence[Point]) -> str:
    return "; ".join(f"{p.at:g}: {p.measured:.2f}" for p in points)
