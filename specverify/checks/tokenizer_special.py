"""Special tokens of draft and target: same ids, same standing, and never inside a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.tokenizer_round_trips import own_texts, standard_texts
from specverify.checks.tokenizer_view import ROLES, Pairing, TokenizerView, pairing, shown
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table

_SHOWN_ROWS = 5


@check(
    "tokenizer.special-tokens-agree",
    claim="Begin, end, unknown and padding tokens have the same ids for both models and never appear inside a text.",
    kind=Kind.EXACT,
    needs={Capability.TOKENIZER},
    exercised_by=Exercised("special-tokens"),
    catches=("special-end-token-differs", "special-begin-token-reinserted", "special-token-is-text-to-draft"),
    source="huggingface/transformers#46124: re-encoding put a begin token into the middle of the draft's context",
)
def special_tokens_agree(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Roles, special flags, and what encoding adds.

    A role that only one tokenizer names is no finding: the engine takes it from the target. Text encoded without
    special tokens must hold none, and with them both tokenizers must add the same.
    """
    pair = pairing(subject, context)
    yield from _roles(pair, context)
    yield from _flags(pair, context)
    for view in (pair.target, pair.draft):
        text = _a_text(view)
        plain = view.encode(text, add_special_tokens=False)
        unknown = view.special_roles.get("unk")
        inserted = [token_id for token_id in plain if token_id in view.special_ids and token_id != unknown]
        if inserted:
            yield Finding(
                headline=f"The {view.role} tokenizer encodes {text!r} without special tokens and puts "
                f"{shown(view.token_bytes[inserted[0]])} (id {inserted[0]}) into it.",
                where=(f"token ids {list(plain[:12])}",),
                not_noise="Asked for no special tokens, it must add none.",
                likely_cause="text that is encoded again each round gets a special token in the middle of the context.",
            )
    text = _a_text(pair.target)
    target_added, draft_added = (_added_around(view, text) for view in (pair.target, pair.draft))
    translated = tuple(tuple(pair.to_target(token_id) for token_id in side) for side in draft_added)
    if target_added != translated:
        yield Finding(
            headline="The two tokenizers put different special tokens around the same text.",
            table=Table(
                rows=[
                    ("tokenizer", "before", "after"),
                    *((v.role, _names(v, a[0]), _names(v, a[1]))
                      for v, a in ((pair.target, target_added), (pair.draft, draft_added))),
                ]
            ),
            where=(f"text {text!r}",),
            not_noise="A prompt encoded by one is another prompt for the other.",
        )  # fmt: skip


def _roles(pair: Pairing, context: CheckContext) -> Iterator[Finding]:
    target, draft = pair.target.special_roles, pair.draft.special_roles
    for role in ROLES:
        if role not in target or role not in draft:
            continue
        context.exercised("special-tokens")
        wanted, found = target[role], draft[role]
        if pair.to_target(found) != wanted:
            yield Finding(
                headline=f"The {role} token is id {wanted} for the target and id {found} for the draft model.",
                table=Table(
                    rows=[
                        ("tokenizer", f"{role} id", "means"),
                        ("target", str(wanted), shown(pair.target.token_bytes.get(wanted))),
                        ("draft", str(found), shown(pair.draft.token_bytes.get(found))),
                    ]
                ),
                not_noise="Ids are compared exactly.",
            )


def _flags(pair: Pairing, context: CheckContext) -> Iterator[Finding]:
    """Tokens with the same bytes that are control for one and text for the other."""
    differing = []
    for draft_id, content in sorted(pair.draft.token_bytes.items()):
        target_id = pair.to_target(draft_id)
        if target_id is not None and pair.target.token_bytes.get(target_id) == content:
            is_special = (target_id in pair.target.special_ids, draft_id in pair.draft.special_ids)
            context.exercised("special-tokens", int(all(is_special)))
            if is_special[0] != is_special[1]:
                differing.append((draft_id, content, is_special[0]))
    if differing:
        draft_id, content, is_control = differing[0]
        sides = ("a control token", "plain text") if is_control else ("plain text", "a control token")
        yield Finding(
            headline=f"{shown(content)} (id {draft_id}) is {sides[0]} for the target and {sides[1]} for the "
            "draft model.",
            where=[f"id {a}: {shown(b)}" for a, b, _ in differing[:_SHOWN_ROWS]],
            not_noise=f"{len(differing):,} tokens differ in their special flag.",
        )


def _a_text(view: TokenizerView) -> str:
    """A plain text; for a vocabulary that cannot spell everything, one of its own tokens."""
    texts = () if view.keeps_every_byte else own_texts(view)
    return (texts or standard_texts())[0]


def _added_around(view: TokenizerView, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that encoding with special tokens puts before and after the text."""
    plain = view.encode(text, add_special_tokens=False)
    full = view.encode(text, add_special_tokens=True)
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start], full[start + len(plain) :]
    return full, ()


def _names(view: TokenizerView, token_ids: tuple[int, ...]) -> str:
    return " ".join(f"{shown(view.token_bytes.get(i))} (id {i})" for i in token_ids) or "nothing"
