"""A probe pair is written, found again unchanged, and refused when it is damaged."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from specverify.core.errors import UsageError
from specverify.probe import ProbePair, default_probe, load_probe, summary, write_probe
from specverify.probe.pair import DEFAULT_SEED, FORMAT_VERSION

# If this changed on purpose, raise FORMAT_VERSION in specverify/probe/pair.py: caches and traces go by it.
PINNED = {
    (1, "target"): "c6e8bfea0a9beef7661bd85ae53a0efa42648288f6afcc60b709765a5e5e6285",
    (1, "draft"): "58887d6640ff301d9320263eae63c7a76d455fb712a6e2d909a8b274ed68745f",
}


@pytest.fixture
def copy(pair: ProbePair, tmp_path: Path) -> Path:
    """A copy of the pair that a test may damage."""
    folder = tmp_path / "copy"
    for path in sorted(pair.directory.rglob("*")):
        if path.is_file():
            goal = folder / path.relative_to(pair.directory)
            goal.parent.mkdir(parents=True, exist_ok=True)
            goal.write_bytes(path.read_bytes())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_same_seed_gives_the_same_bytes(pair: ProbePair, tmp_path: Path):
    """Two writings of one seed differ in no file, the manifest included."""
    write_probe(tmp_path / "again", seed=DEFAULT_SEED)

    assert contents(pair.directory) == contents(tmp_path / "again")


@pytest.mark.parametrize("role", ["target", "draft"])
def test_weights_of_the_default_seed_are_pinned(pair: ProbePair, role: str):
    """On every machine and numpy the default pair has these very weights."""
    digest = hashlib.sha256((pair.directory / role / "model.safetensors").read_bytes()).hexdigest()

    assert PINNED[FORMAT_VERSION, role] == digest


def test_another_seed_gives_another_model(pair: ProbePair, tmp_path: Path):
    """The seed reaches the weights."""
    other = write_probe(tmp_path / "other", seed=DEFAULT_SEED + 1)

    assert pair.manifest["files"]["target/model.safetensors"] != other.manifest["files"]["target/model.safetensors"]
    assert pair.prompts != other.prompts


def test_written_pair_loads(pair: ProbePair):
    """Loading finds what writing returned."""
    loaded = load_probe(pair.directory)

    assert json.loads(json.dumps(pair.manifest)) == loaded.manifest
    assert pair.prompts == loaded.prompts
    assert loaded.seed == DEFAULT_SEED


def test_writing_over_a_pair_is_allowed(copy: Path):
    """A probe pair may be replaced by another seed."""
    assert write_probe(copy, seed=7).seed == 7
    assert load_probe(copy).seed == 7


def test_writing_into_somebody_elses_directory_is_refused(tmp_path: Path):
    """Nothing is overwritten that is not a probe pair."""
    (tmp_path / "thesis.txt").write_text("chapter 1")

    with pytest.raises(UsageError, match="not empty and holds no probe pair"):
        write_probe(tmp_path)


def test_writing_onto_a_file_is_refused(tmp_path: Path):
    """A file where a directory was wanted is said to be one."""
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="is a file"):
        write_probe(tmp_path / "file")


def test_negative_seed_is_refused(tmp_path: Path):
    """Seeds are whole numbers from 0."""
    with pytest.raises(UsageError, match="seed is -1"):
        write_probe(tmp_path / "pair", seed=-1)


def test_missing_pair_is_refused(tmp_path: Path):
    """The message says how to write one."""
    with pytest.raises(UsageError, match="specverify probe"):
        load_probe(tmp_path)


def test_missing_file_is_named(copy: Path):
    """A pair without its weights does not load."""
    (copy / "draft" / "model.safetensors").unlink()

    with pytest.raises(UsageError, match=r"draft.model\.safetensors is missing"):
        load_probe(copy)


def test_truncated_file_is_named(copy: Path):
    """A download or disk that stopped early is told from an alteration."""
    weights = copy / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])

    with pytest.raises(UsageError, match="is truncated: it has 1217052 bytes"):
        load_probe(copy)


def test_altered_file_is_named(copy: Path):
    """One flipped bit of one weight is found."""
    weights = copy / "target" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)

    with pytest.raises(UsageError, match="was altered"):
        load_probe(copy)


def test_altered_manifest_is_refused(copy: Path):
    """Figures that nobody measured are not believed."""
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["sensitivity"]["missing-row"]["mean_tv"] = 0.9
    (copy / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(UsageError, match="own digest"):
        load_probe(copy)


@pytest.mark.parametrize("text", ["{", "[]", ""])
def test_unreadable_manifest_is_refused(copy: Path, text: str):
    """Half a manifest is a clear error."""
    (copy / "manifest.json").write_text(text)

    with pytest.raises(UsageError, match=r"manifest\.json is not readable"):
        load_probe(copy)


def test_other_format_version_is_refused(copy: Path):
    """A pair of another specverify is told apart from a damaged one."""
    (copy / "manifest.json").write_text(json.dumps({"format": "specverify-probe", "format_version": 999}))

    with pytest.raises(UsageError, match="format version 999"):
        load_probe(copy)


def test_default_probe_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second call finds the first one's files."""
    monkeypatch.setenv("SPECVERIFY_CACHE", str(tmp_path))
    first = default_probe()
    stamp = (first.directory / "manifest.json").stat().st_mtime_ns

    second = default_probe()

    assert first.directory == second.directory
    assert stamp == (second.directory / "manifest.json").stat().st_mtime_ns
    assert [first.directory] == list(tmp_path.iterdir())


def test_damaged_cache_is_repaired_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A user with half a cache gets a working pair and is told."""
    monkeypatch.setenv("SPECVERIFY_CACHE", str(tmp_path))
    (default_probe().target_dir / "config.json").unlink()

    with pytest.warns(UserWarning, match=r"damaged and is written again: .*config\.json is missing"):
        repaired = default_probe()

    assert (repaired.target_dir / "config.json").is_file()


def test_unwritable_cache_is_one_clear_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The variable to set is named."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECVERIFY_CACHE", str(tmp_path / "file"))

    with pytest.raises(UsageError, match="set SPECVERIFY_CACHE"):
        default_probe()


def test_writing_needs_no_torch(tmp_path: Path):
    """The pair can be made on a machine that has only the engine under test."""
    program = (
        "import sys; from specverify.probe import write_probe; write_probe(sys.argv[1]).target_oracle.logits([1, 2]);"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program, str(tmp_path / "pair")], check=False).returncode == 0


def test_prompts_are_ragged_and_hold_words_only(pair: ProbePair):
    """Each begins with the begin token; no other special token, all lengths different."""
    lengths = [len(prompt) for prompt in pair.prompts]

    assert len(set(lengths)) == len(lengths)
    for prompt in pair.prompts + pair.lookup_prompts:
        assert pair.bos_token_id == prompt[0]
        assert all(4 <= token < pair.vocab_size for token in prompt[1:])


def test_lookup_prompts_hold_every_word_before_another(pair: ProbePair):
    """Prompt lookup finds a continuation whatever word comes."""
    for prompt in pair.lookup_prompts:
        assert set(range(4, 32)) == set(prompt[1:-1])


def test_summary_names_files_laws_and_faults(pair: ProbePair):
    """What the command prints is all there, as text."""
    sections = summary(pair)

    assert list(sections) == ["files", "laws", "sensitivity"]
    assert "position-plus-one" in dict(sections["sensitivity"])
    assert all(isinstance(cell, str) for rows in sections.values() for row in rows for cell in row)
