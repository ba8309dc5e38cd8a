"""Pairs of tokenizers that do not fit, and pairs that do although they look as if they did not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from specverify.core.capabilities import Capability
from specverify.faults.fault import CorrectSubject, Fault

_SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
_WORDS = ("red", "green", "blue", "black", "white", "pink", "grey", "gold", "brown", "violet", "orange", "yellow")


@dataclass(frozen=True, eq=False)
class TokenizerPair:
    """A subject that shows two tokenizers and the sizes of their models, and nothing else."""

    name: str
    tokenizers: Mapping[str, Any]
    vocab_sizes: Mapping[str, int] | None = None
    draft_to_target: Sequence[int] | None = None
    capabilities: frozenset[Capability] = field(default=frozenset({Capability.TOKENIZER}))


class NamedTokens:
    """A tokenizer that also says which ids begin, end, pad and stand for the unknown, as transformers' do."""

    def __init__(self, backend: Tokenizer, *, eos: str = "</s>") -> None:
        self.backend_tokenizer = backend
        vocab = backend.get_vocab()
        self.bos_token_id, self.eos_token_id = vocab["<s>"], vocab[eos]
        self.pad_token_id, self.unk_token_id = vocab["<pad>"], vocab["<unk>"]

    def get_vocab(self) -> dict[str, int]:
        vocab: dict[str, int] = self.backend_tokenizer.get_vocab()
        return vocab

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        ids: list[int] = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return str(self.backend_tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens))


class BeginsEveryText(NamedTokens):
    """Adds the begin token even where it was told not to."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return super().encode(text, add_special_tokens=True)


class CleansUpSpaces(NamedTokens):
    """Tidies the spaces before punctuation away when it decodes."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        text = super().decode(token_ids, skip_special_tokens=skip_special_tokens)
        for mark in (".", "?", "!", ",", "'"):
            text = text.replace(f" {mark}", mark)
        return text


def words(tokens: Sequence[str] = _SPECIAL + _WORDS, *, special: Sequence[str] = _SPECIAL) -> Tokenizer:
    """A word-level tokenizer whose ids follow the order of the tokens; it begins texts with <s>."""
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special if token in vocab])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    return tokenizer


def byte_pairs(merges: Sequence[tuple[str, str]] = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"))) -> Tokenizer:
    """A byte-level tokenizer with a few merges: any text survives it."""
    tokens = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "Ġthe", "in", "he", "Ġt"]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """A SentencePiece-like tokenizer: spaces as a block character, unknown characters as bytes."""
    tokens = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz", "▁t"]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [("▁", "t")], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    return tokenizer


def _pair(
    name: str, target: Callable[[], Any], draft: Callable[[], Any], **options: Any
) -> Callable[[], TokenizerPair]:
    return lambda: TokenizerPair(name, {"target": target(), "draft": draft()}, **options)


def _named_words(*, eos: str = "</s>") -> NamedTokens:
    return NamedTokens(words(), eos=eos)


def _fault(name: str, sentence: str, report: str, target: Any, draft: Any, **options: Any) -> Fault:
    return Fault(name, sentence, report, _pair(name, target, draft, **options))


_SWAPPED = (*_SPECIAL, _WORDS[1], _WORDS[0], *_WORDS[2:])
_REDUCED = (*_SPECIAL, *_WORDS[2::2])
_REDUCED_TABLE = (0, 1, 2, 3, *range(len(_SPECIAL) + 2, len(_SPECIAL) + len(_WORDS), 2))
_NUM_TOKENS = len(_SPECIAL) + len(_WORDS)

FAULTS: tuple[Fault, ...] = (
    _fault("tokenizer-ids-permuted", "The draft model has the same tokens in another order.",
           "ggml-org/llama.cpp#3812", words, lambda: words((*_SPECIAL, *sorted(_WORDS)))),
    _fault("tokenizer-ids-swapped", "Two ids of the draft vocabulary are exchanged.",
           "sgl-project/sglang#23838", words, lambda: words(_SWAPPED)),
    _fault("tokenizer-reduced-vocabulary-without-table",
           "The drafter knows every other token, and its table from draft ids to target ids is missing.",
           "NVIDIA-NeMo/Automodel#2447", words, lambda: words(_REDUCED)),
    _fault("tokenizer-table-in-draft-ids",
           "The table from draft ids to target ids is there but holds draft ids: indices are passed on as they are.",
           "vllm-project/vllm-ascend#16166",
           words, lambda: words(_REDUCED), draft_to_target=tuple(range(len(_REDUCED)))),
    _fault("tokenizer-draft-id-out-of-range",
           "A special token of the draft vocabulary has an id that the target does not have.",
           "ggml-org/llama.cpp#17480",
           words, lambda: words((*_SPECIAL, *_WORDS, "<tool>"), special=(*_SPECIAL, "<tool>")),
           vocab_sizes={"target": _NUM_TOKENS, "draft": _NUM_TOKENS + 1}),
    _fault("tokenizer-model-too-narrow", "The draft model's head has fewer rows than its tokenizer has words.",
           "SafeAILab/EAGLE#258", words, words, vocab_sizes={"target": _NUM_TOKENS, "draft": _NUM_TOKENS - 4}),
    _fault("special-placeholder-out-of-range", "A placeholder token for pictures lies beyond the rows of both models.",
           "sgl-project/sglang#27863",
           lambda: words((*_SPECIAL, *_WORDS, "<image>"), special=(*_SPECIAL, "<image>")),
           lambda: words((*_SPECIAL, *_WORDS, "<image>"), special=(*_SPECIAL, "<image>")),
           vocab_sizes={"target": _NUM_TOKENS, "draft": _NUM_TOKENS}),
    _fault("special-end-token-differs", "The draft model ends texts with another token than the target.",
           "ggml-org/llama.cpp#3812", _named_words, lambda: _named_words(eos="<pad>")),
    _fault("special-begin-token-reinserted",
           "Text that is encoded again for the draft model gets a begin token although none was asked for.",
           "huggingface/transformers#46124",
           lambda: NamedTokens(byte_pairs()), lambda: BeginsEveryText(_beginning_byte_pairs())),
    _fault("special-token-is-text-to-draft",
           "The draft tokenizer knows the end token as plain text, so it cuts and shows it like a word.",
           "ggml-org/llama.cpp#3812", words, lambda: words(special=("<pad>", "<s>", "<unk>"))),
    _fault("tokenizer-cleans-up-spaces", "Decoding tidies spaces away, so the text encoded again has other tokens.",
           "huggingface/transformers#46124", lambda: NamedTokens(byte_pairs()), lambda: CleansUpSpaces(byte_pairs())),
    _fault("tokenizer-encodes-differently",
           "Same ids and bytes, but other merges: the draft tokenizer cuts text into another number of tokens.",
           "huggingface/transformers#46936", byte_pairs, lambda: byte_pairs((("h", "e"), ("t", "he"), ("i", "n")))),
)  # fmt: skip


def _beginning_byte_pairs() -> Tokenizer:
    tokenizer = byte_pairs()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def _with_unused(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens([AddedToken(f"<unused{i}>", special=True) for i in range(4)])
    return tokenizer


def _sound(name: str, sentence: str, target: Any = words, draft: Any = words, **options: Any) -> CorrectSubject:
    return CorrectSubject(name, sentence, _pair(name, target, draft, **options))


CORRECT: tuple[CorrectSubject, ...] = (
    _sound("tokenizer-words", "One word-level tokenizer for both models."),
    _sound("tokenizer-byte-pairs", "One byte-level tokenizer for both models.",
           lambda: NamedTokens(byte_pairs()), lambda: NamedTokens(byte_pairs())),
    _sound("tokenizer-byte-fallback", "One SentencePiece-like tokenizer with byte fallback for both models.",
           byte_fallback, byte_fallback),
    _sound("tokenizer-wider-target-head", "Same tokenizer; the target's head is padded further (vllm#13849).",
           vocab_sizes={"target": 128, "draft": 64}),
    _sound("tokenizer-wider-draft-head", "Same tokenizer; the draft's head is padded further (vllm#13849).",
           vocab_sizes={"target": 64, "draft": 128}),
    _sound("tokenizer-unused-tokens", "The target's tokenizer has a few unused tokens more, within its rows.",
           lambda: _with_unused(words()), vocab_sizes={"target": 64, "draft": 64}),
    _sound("tokenizer-unused-draft-tokens",
           "The draft's tokenizer has unused tokens more, which the target has rows for.",
           draft=lambda: _with_unused(words()), vocab_sizes={"target": 64, "draft": 64}),
    _sound("tokenizer-reduced-vocabulary", "The drafter has a reduced vocabulary and the right table of target ids.",
           draft=lambda: words(_REDUCED), draft_to_target=_REDUCED_TABLE),
)  # fmt: skip
