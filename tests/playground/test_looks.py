"""Narrow screens, dark mode, contrast and names for everybody."""

from __future__ import annotations

import pytest

TOKEN_KINDS = ("accepted", "rejected", "discarded", "residual", "bonus")
# WCAG 2.1, criterion 1.4.3, for text of normal size.
ENOUGH_CONTRAST = 4.5
CONTRAST = """(() => {
  const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    return Array.from(paint.getImageData(0, 0, 1, 1).data).slice(0, 3);
  };
  const round = document.getElementById("round");
  return KINDS.map((kind) => {
    round.innerHTML = `<li class="token ${kind}"><b>1</b><span>x</span><small>note</small></li>`;
    const token = round.firstChild, back = light(rgb(getComputedStyle(token).backgroundColor));
    return Array.from(token.children, (part) => {
      const front = light(rgb(getComputedStyle(part).color));
      return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    });
  });
})()""".replace("KINDS", repr(list(TOKEN_KINDS)))


@pytest.mark.parametrize("width", [320, 360, 600, 1000, 1600])
def test_no_sideways_scrolling(browser, page_file, width):
    """Nothing sticks out, from a small phone to a wide screen."""
    browser.open(page_file, width=width)

    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(browser, page_file, dark):
    """Every kind of token is readable on its ground, in light and dark."""
    browser.open(page_file, dark=dark)

    contrasts = browser.evaluate(CONTRAST)

    assert min(min(kind) for kind in contrasts) >= ENOUGH_CONTRAST


def test_dark_mode_is_dark(browser, page_file):
    """The page follows the reader's scheme."""
    grounds = []
    for dark in (False, True):
        browser.open(page_file, dark=dark)
        grounds.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))

    assert grounds == ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]


def test_kinds_differ_without_colour(browser):
    """Each kind of token has a mark and a word of its own."""
    kinds = browser.evaluate(f"{list(TOKEN_KINDS)!r}.map((kind) => [KINDS[kind].mark, KINDS[kind].label])")

    assert len({mark for mark, _ in kinds}) == len({label for _, label in kinds}) == len(TOKEN_KINDS)


def test_everything_has_a_name(browser):
    """Whatever takes the focus, and every picture, says what it is to a screen reader."""
    browser.send("Accessibility.enable")
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "slider", "combobox", "radio", "image", "img", "group")
    found = [(node["role"]["value"], node["name"]["value"]) for node in nodes if node["role"]["value"] in roles]

    assert [role for role, name in found if not name.strip()] == []
    assert {"button", "slider", "combobox", "radio", "group"} <= {role for role, _ in found}


def test_chart_follows_the_width(browser, page_file):
    """Charts are drawn at the width that is there, so their text keeps its size."""
    browser.open(page_file, width=360)

    width, scale = browser.evaluate(
        "(() => { const it = document.querySelector('#speedup-chart svg'); const box = it.getBoundingClientRect();"
        "return [box.width, box.width / it.viewBox.baseVal.width]; })()"
    )

    assert width <= 360
    assert scale == pytest.approx(1.0, abs=0.01)
