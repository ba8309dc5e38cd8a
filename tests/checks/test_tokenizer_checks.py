"""Tokenizers that do not fit are told from those that only look as if they did not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from specverify.catalogue import check_by_id
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.checks.tokenizer_view import TokenizerView, shown
from specverify.core.errors import UsageError
from specverify.core.outcomes import Finding
from specverify.core.randomness import Streams
from specverify.faults.tokenizer import CORRECT, FAULTS, NamedTokens, TokenizerPair, byte_fallback, byte_pairs, words

CHECK_IDS = (
    "tokenizer.vocabularies-agree",
    "tokenizer.special-tokens-agree",
    "tokenizer.round-trips",
    "tokenizer.vocabulary-padding",
)


def judge(check_id: str, subject: object) -> tuple[list[Finding], CheckContext]:
    context = CheckContext(alpha=1e-9, streams=Streams(0))
    return list(check_by_id(check_id).judge(subject, context)), context


def pair(target: object, draft: object, **options: object) -> TokenizerPair:
    return TokenizerPair("pair", {"target": target, "draft": draft}, **options)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_is_caught_by_the_check_that_names_it(fault):
    """The kill matrix of the family has no hole."""
    catching = [check_id for check_id in CHECK_IDS if fault.name in check_by_id(check_id).catches]

    assert catching
    for check_id in catching:
        assert judge(check_id, fault.make())[0], check_id


@pytest.mark.parametrize("check_id", CHECK_IDS)
@pytest.mark.parametrize("correct", CORRECT, ids=lambda correct: correct.name)
def test_sound_pairs_stay_clean_and_are_exercised(correct, check_id):
    """Padded heads, unused tokens and reduced vocabularies with a table are no findings."""
    findings, context = judge(check_id, correct.make())

    assert findings == []
    assert all(context.counters[one.counter] >= one.at_least for one in check_by_id(check_id).exercised_by)


def test_smallest_case_names_id_and_both_meanings():
    """A reader sees at once what one id means to each side."""
    fault = next(fault for fault in FAULTS if fault.name == "tokenizer-ids-swapped")

    (finding,), _ = judge("tokenizer.vocabularies-agree", fault.make())

    assert finding.headline == "Draft id 4 is 'green', but the target takes it as id 4, which is 'red'."
    assert finding.not_noise == "2 of 16 ids differ; ids and bytes are compared exactly."


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("tokenizer-ids-permuted", "another order"),
        ("tokenizer-reduced-vocabulary-without-table", "table was not loaded"),
        ("tokenizer-table-in-draft-ids", "table is wrong"),
    ],
)
def test_cause_is_named_where_one_pattern_explains_all(name, cause):
    """Three ways to the same symptom are told apart."""
    subject = next(fault for fault in FAULTS if fault.name == name).make()

    (finding,), _ = judge("tokenizer.vocabularies-agree", subject)

    assert cause in finding.likely_cause


def test_an_inserted_token_is_recognised_as_a_shift():
    """All ids behind it are off by one."""
    shifted = words(("<pad>", "<s>", "</s>", "<unk>", "red", "green", "blue"))
    target = words(("<pad>", "<s>", "</s>", "<unk>", "new", "red", "green", "blue"))

    (finding,), _ = judge("tokenizer.vocabularies-agree", pair(target, shifted))

    assert "from id 4 on, draft ids are 1 behind" in finding.likely_cause


def test_no_cause_is_guessed_for_unrelated_vocabularies():
    """A cause is only named if it explains every differing id."""
    (finding,), _ = judge("tokenizer.vocabularies-agree", pair(words(), byte_pairs()))

    assert finding.likely_cause == ""


def test_same_bytes_in_another_spelling_agree():
    """A byte-level space and a SentencePiece space are the same byte."""
    level = Tokenizer(models.BPE({"Ġ": 0, "Ã": 1, "a": 2}, []))
    level.pre_tokenizer, level.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    piece = Tokenizer(models.BPE({"▁": 0, "<0xC3>": 1, "a": 2}, [], byte_fallback=True))
    piece.pre_tokenizer = pre_tokenizers.Metaspace()

    findings, context = judge("tokenizer.vocabularies-agree", pair(level, piece))

    assert findings == []
    assert context.counters["compared-tokens"] == 3


def test_token_bytes_of_a_byte_level_vocabulary_cover_all_bytes():
    """Each of the 256 bytes is exactly one token."""
    contents = list(TokenizerView(byte_pairs(), "target").token_bytes.values())

    assert {bytes([byte]) for byte in range(256)} == {content for content in contents if len(content) == 1}


def test_token_bytes_of_a_byte_fallback_vocabulary_cover_all_bytes():
    """So it is with byte-fallback tokens, besides the letters."""
    contents = list(TokenizerView(byte_fallback(), "target").token_bytes.values())

    assert {bytes([byte]) for byte in range(256)} <= set(contents)


def test_bytes_that_are_no_text_are_shown_in_hexadecimal():
    """Half of a character is printed as what it is."""
    assert shown(b"\xe2\x82") == "bytes e2 82"
    assert shown(b" the") == "' the'"


def test_end_token_that_only_one_side_names_is_no_finding():
    """The engine takes it from the target."""
    findings, _ = judge("tokenizer.special-tokens-agree", pair(NamedTokens(byte_pairs()), byte_pairs()))

    assert findings == []


def test_begin_token_that_only_the_target_adds_is_found():
    """The same prompt text would be another prompt for the draft model."""
    (finding,), _ = judge("tokenizer.special-tokens-agree", pair(words(), without_begin_token()))

    assert "different special tokens around the same text" in finding.headline
    assert ("target", "'<s>' (id 1)", "nothing") in finding.table.rows


def without_begin_token() -> Tokenizer:
    tokenizer = words()
    tokenizer.post_processor = None
    return tokenizer


def test_padding_rows_of_the_draft_are_noted():
    """They pass, and the report says which ids no draft may name."""
    correct = next(one for one in CORRECT if one.name == "tokenizer-wider-draft-head")

    findings, context = judge("tokenizer.vocabulary-padding", correct.make())

    assert findings == []
    assert "draft rows 64 to 127 are padding: drafts must never name them" in context.worth_lines


def test_table_that_names_a_target_id_twice_is_found():
    """The draft probability of that token would be split."""
    subject = next(one for one in CORRECT if one.name == "tokenizer-reduced-vocabulary").make()
    table = [*subject.draft_to_target[:-1], 4]
    table[-2] = 4

    findings, _ = judge("tokenizer.vocabulary-padding", replace(subject, draft_to_target=table))

    assert any("both stand for target id 4" in finding.headline for finding in findings)


def test_table_that_is_too_short_is_found():
    """A draft id without a row has no meaning."""
    subject = next(one for one in CORRECT if one.name == "tokenizer-reduced-vocabulary").make()

    (finding,), _ = judge(
        "tokenizer.vocabulary-padding", replace(subject, draft_to_target=subject.draft_to_target[:-1])
    )

    assert "has no row in the draft-to-target table" in finding.headline


@pytest.mark.parametrize("check_id", CHECK_IDS)
def test_one_tokenizer_alone_is_inconclusive(check_id):
    """There is nothing to compare, and that is no pass."""
    with pytest.raises(Inconclusive, match="no draft tokenizer"):
        judge(check_id, TokenizerPair("alone", {"target": words()}))


def test_an_object_that_is_no_tokenizer_is_refused():
    """The missing methods are named."""
    with pytest.raises(UsageError, match="without get_vocab and encode and decode"):
        judge("tokenizer.vocabularies-agree", pair(words(), object()))


def test_tokenizers_of_transformers_are_understood(tmp_path):
    """The probe pair's tokenizers, loaded as users load them, pass every check."""
    transformers = pytest.importorskip("transformers")
    from specverify.probe import write_probe

    probe = write_probe(tmp_path / "pair")
    loaded = [transformers.AutoTokenizer.from_pretrained(folder) for folder in (probe.target_dir, probe.draft_dir)]
    subject = pair(*loaded, vocab_sizes={"target": 32, "draft": 32})

    assert {check_id: [] for check_id in CHECK_IDS} == {i: judge(i, subject)[0] for i in CHECK_IDS}
    assert TokenizerView(loaded[0], "target").special_roles == {"bos": 1, "eos": 2, "unk": 3, "pad": 0}


def test_special_token_that_transformers_names_otherwise_is_found(tmp_path):
    """End tokens that differ are seen on transformers' own objects."""
    transformers = pytest.importorskip("transformers")
    ends = [
        transformers.PreTrainedTokenizerFast(tokenizer_object=words(), bos_token="<s>", eos_token=eos)
        for eos in ("</s>", "<pad>")
    ]

    findings, _ = judge("tokenizer.special-tokens-agree", pair(*ends))

    assert findings[0].headline == "The eos token is id 2 for the target and id 0 for the draft model."
