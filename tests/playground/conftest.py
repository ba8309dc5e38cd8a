from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from specverify.playground.page import write_page
from tests.playground.browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium or google-chrome on the path: the page is tested in a real browser")
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory) -> Path:
    """The page without a trace, as `specverify play --out` writes it."""
    path = tmp_path_factory.mktemp("play") / "play.html"
    write_page(path)
    return path


@pytest.fixture
def browser(running_browser, page_file) -> Iterator[Browser]:
    """A browser with a fresh page. Whatever a test does, the page must throw nothing and ask the network nothing."""
    running_browser.open(page_file)
    yield running_browser
    assert running_browser.errors == []
    assert {address.split(":")[0] for address in running_browser.requests} <= {"file", "data"}
