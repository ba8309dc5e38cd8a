"""What is trained on, and what is kept for measuring."""

from __future__ import annotations

from pathlib import Path

import pytest

from specverify.core.errors import UsageError
from specverify.reference.training.corpus import HELD_OUT_SHARE, is_held_out, read_corpus, standard_library


def test_library_is_split_by_file() -> None:
    """No file on both sides, about a tenth held out, no tests among them."""
    corpus = standard_library()

    assert not set(corpus.train) & set(corpus.held_out)
    total = len(corpus.train) + len(corpus.held_out)
    assert len(corpus.held_out) == pytest.approx(HELD_OUT_SHARE * total, rel=0.5)
    assert all("test" not in name.split("/") for name in (*corpus.train, *corpus.held_out))


def test_split_depends_on_the_name_alone() -> None:
    """Known names, so that no change of the rule goes unnoticed: models that ship were trained by it."""
    assert [is_held_out(name) for name in ("textwrap.py", "calendar.py", "json/encoder.py")] == [False, True, True]


def test_named_files_and_folders_are_read(tmp_path: Path) -> None:
    for index in range(40):
        (tmp_path / f"part{index}.txt").write_text(f"text {index}", encoding="utf-8")
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")

    corpus = read_corpus([tmp_path])

    assert len(corpus.train) + len(corpus.held_out) == 40
    assert 0 < len(corpus.held_out) < len(corpus.train)


def test_text_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    (tmp_path / "only.txt").write_text("text", encoding="utf-8")

    with pytest.raises(UsageError, match="name more of them"):
        read_corpus([tmp_path / "only.txt"])
    with pytest.raises(UsageError, match="is not there"):
        read_corpus([tmp_path / "none.txt"])
