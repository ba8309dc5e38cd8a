"""One way to look at tokenizers of different makes: ids, bytes, special tokens, encode and decode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specverify.checks.evidence import once
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.errors import UsageError

ROLES = ("bos", "eos", "unk", "pad")
# Tried in turn: not every decode takes every option.
_DECODE_OPTIONS: tuple[dict[str, bool], ...] = (
    {"clean_up_tokenization_spaces": False, "skip_special_tokens": False},
    {"skip_special_tokens": False},
)
_METHODS = ("get_vocab", "encode", "decode")


class TokenizerView:
    """A tokenizer of the `tokenizers` or `transformers` package, or anything with get_vocab, encode and decode.

    role: "target" or "draft", for messages. Raises UsageError where a method is missing.
    """

    def __init__(self, tokenizer: Any, role: str) -> None:
        missing = [name for name in _METHODS if not callable(getattr(tokenizer, name, None))]
        if missing:
            raise UsageError(
                f"the {role} tokenizer is a {type(tokenizer).__name__} without {' and '.join(missing)}; "
                f"give an object with {', '.join(_METHODS)}"
            )
        self.role = role
        self.tokenizer = tokenizer

    @cached_property
    def tokens(self) -> dict[int, str]:
        """Token strings by id, added tokens included."""
        return {int(token_id): token for token, token_id in self.tokenizer.get_vocab().items()}

    @cached_property
    def size(self) -> int:
        """One more than the largest id."""
        return max(self.tokens, default=-1) + 1

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that are control tokens and no text."""
        flagged = {token_id for token_id, is_special in self._added.items() if is_special}
        return frozenset(flagged | set(getattr(self.tokenizer, "all_special_ids", ())))

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of tokens that were added to the vocabulary afterwards, special or not."""
        return self.special_ids | frozenset(self._added)

    @cached_property
    def special_roles(self) -> dict[str, int]:
        """Ids of the begin, end, unknown and padding token, where the tokenizer names them."""
        ids = {role: getattr(self.tokenizer, f"{role}_token_id", None) for role in ROLES}
        unknown = (self._description.get("model") or {}).get("unk_token")
        if ids["unk"] is None and unknown is not None:
            ids["unk"] = self.tokenizer.get_vocab().get(unknown)
        return {role: int(token_id) for role, token_id in ids.items() if token_id is not None}

    @cached_property
    def keeps_every_byte(self) -> bool:
        """Whether any text can be encoded without loss: bytes are tokens, and nothing normalises the text."""
        return (self._is_byte_level or self._has_byte_fallback) and not self._changes_text

    @cached_property
    def token_bytes(self) -> dict[int, bytes]:
        """What each id stands for in the text. The spellings of byte-level, SentencePiece and byte-fallback
        vocabularies are resolved, so that the same bytes compare equal across them."""
        return {token_id: self._bytes_of(token_id, token) for token_id, token in self.tokens.items()}

    def encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        """Token ids of a text."""
        try:
            encoded = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except TypeError:
            encoded = self.tokenizer.encode(text)
        return tuple(int(token_id) for token_id in getattr(encoded, "ids", encoded))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids as it is: special tokens written out, white space not tidied up."""
        for options in _DECODE_OPTIONS:
            try:
                return str(self.tokenizer.decode(list(token_ids), **options))
            except TypeError:
                continue
        return str(self.tokenizer.decode(list(token_ids)))

    def _bytes_of(self, token_id: int, token: str) -> bytes:
        if token_id in self._added:
            return token.encode()
        if self._is_byte_level and all(character in _BYTE_OF for character in token):
            return bytes(_BYTE_OF[character] for character in token)
        if self._has_byte_fallback and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return (token.replace("\N{LOWER ONE EIGHTH BLOCK}", " ") if self._is_metaspace else token).encode()

    @cached_property
    def _added(self) -> dict[int, bool]:
        """Added tokens: id to whether it is special."""
        entries = self._description.get("added_tokens") or []
        return {int(entry["id"]): bool(entry["special"]) for entry in entries}

    @cached_property
    def _description(self) -> Mapping[str, Any]:
        """The tokenizer.json of it; empty where it has none."""
        backend = getattr(self.tokenizer, "backend_tokenizer", self.tokenizer)
        if not callable(getattr(backend, "to_str", None)):
            return {}
        description: dict[str, Any] = json.loads(backend.to_str())
        return description

    @cached_property
    def _parts(self) -> str:
        """Pre-tokenizer and decoder as text: the kinds of their parts are looked up in it."""
        return json.dumps([self._description.get("pre_tokenizer"), self._description.get("decoder")])

    @cached_property
    def _is_byte_level(self) -> bool:
        return '"ByteLevel"' in self._parts

    @cached_property
    def _is_metaspace(self) -> bool:
        return "Metaspace" in self._parts or "\\u2581" in self._parts

    @cached_property
    def _has_byte_fallback(self) -> bool:
        return bool((self._description.get("model") or {}).get("byte_fallback")) or '"ByteFallback"' in self._parts

    @cached_property
    def _changes_text(self) -> bool:
        # Unicode composition leaves composed text alone, and the texts of the checks are composed.
        kinds = json.dumps(self._description.get("normalizer"))
        return any(f'"{kind}"' in kinds for kind in ("Lowercase", "Strip", "StripAccents", "BertNormalizer", "Nmt"))


@dataclass(frozen=True, eq=False)
class Pairing:
    """Both tokenizers of a subject and how draft ids become target ids.

    draft_to_target: id table of a drafter with a reduced vocabulary, or None where ids are passed on as they are.
    vocab_sizes: rows of the models' heads, where known.
    """

    target: TokenizerView
    draft: TokenizerView
    draft_to_target: tuple[int, ...] | None
    vocab_sizes: Mapping[str, int]

    def to_target(self, draft_id: int) -> int | None:
        """The target id that a draft id stands for; None where the table has no such row."""
        if self.draft_to_target is None:
            return draft_id
        return self.draft_to_target[draft_id] if draft_id < len(self.draft_to_target) else None

    def width(self, role: str) -> int:
        """How many ids the model of that role has logits for; without that knowledge, those of the tokenizer."""
        view = self.target if role == "target" else self.draft
        return int(self.vocab_sizes.get(role, view.size))


def pairing(subject: Any, context: CheckContext) -> Pairing:
    """The two tokenizers of a subject, read once. Raises Inconclusive where there is only one: nothing to compare.

    Read from the subject: tokenizers, and where it has them vocab_sizes and draft_to_target.
    """
    return once(context, "tokenizers", lambda: _read(subject))


def _read(subject: Any) -> Pairing:
    tokenizers = subject.tokenizers
    absent = [role for role in ("target", "draft") if tokenizers.get(role) is None]
    if absent:
        raise Inconclusive(f"it shows no {' and no '.join(absent)} tokenizer; there is nothing to compare")
    table = getattr(subject, "draft_to_target", None)
    return Pairing(
        target=TokenizerView(tokenizers["target"], "target"),
        draft=TokenizerView(tokenizers["draft"], "draft"),
        draft_to_target=None if table is None else tuple(int(token_id) for token_id in table),
        vocab_sizes=dict(getattr(subject, "vocab_sizes", None) or {}),
    )


def shown(content: bytes | None) -> str:
    """A token's bytes for reading: text where it is text, else the bytes in hexadecimal."""
    if content is None:
        return "nothing"
    try:
        return repr(content.decode())
    except UnicodeDecodeError:
        return "bytes " + content.hex(" ")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable character for each byte in byte-level vocabularies, backwards.

    Source: bytes_to_unicode of GPT-2, github.com/openai/gpt-2, src/encoder.py.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_level_alphabet()
