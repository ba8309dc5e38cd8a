"""Pages that are written by hand name everything that they list."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from specverify.core.capabilities import Capability
from specverify.core.types import SamplingParams
from specverify.golden import read_recipe

DOCS = Path(__file__).parent.parent / "docs"
OF_FUNCTIONS = {"VERIFY", "VERIFY_CALLS", "DRAFT_PROBS_ARGUMENT", "UNIFORMS_ARGUMENT", "GENERATOR_ARGUMENT"}
ATTRIBUTES = ("dtype", "prompts", "vocab_size", "scenarios", "num_draft_tokens", "max_new_tokens", "lossy_by_design")


@pytest.mark.parametrize("name", [one.name for one in Capability if one.name not in OF_FUNCTIONS])
def test_every_capability_of_an_engine_is_in_the_table(name):
    """What to provide for it is said."""
    rows = [line for line in (DOCS / "adapters.md").read_text().splitlines() if line.startswith("| `")]

    assert any(f"`{name}`" in row.split("|")[1] for row in rows)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_that_a_newcomer_needs_is_described(name):
    """Prompts and vocabulary first of all."""
    assert f"`{name}`" in (DOCS / "adapters.md").read_text()


def test_the_recipe_of_the_page_is_one(tmp_path):
    """Copied from the page it is read, and the page has every key."""
    page = (DOCS / "golden-traces.md").read_text()
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(page.split("```toml\n")[1].split("```")[0])

    options, requests = read_recipe(recipe)

    assert (len(options), len(requests)) == (2, 2)
    assert all(f"`{field.name}`" in page for field in fields(SamplingParams))
