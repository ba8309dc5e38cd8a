"""What a parameter of a verify function can mean, and which meaning its name gives away. Imports no numpy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specverify.core.errors import UsageError

SIDES = ("draft", "target", "bonus")
FORMS = ("probs", "logprobs", "logits")

ROLES: Mapping[str, str] = {
    "draft_token_ids": "the draft tokens [k]",
    "sequence_token_ids": "committed tokens with the draft tokens behind them [n + k]",
    "prefix_token_ids": "the committed tokens [n]",
    "draft_probs": "draft laws [k, vocab]",
    "draft_logprobs": "draft laws as log-probabilities [k, vocab]",
    "draft_logits": "draft laws as logits [k, vocab]",
    "draft_token_probs": "draft probability of each draft token [k]",
    "draft_token_logprobs": "the same as log-probabilities [k]",
    "target_probs": "target laws [k + 1, vocab]",
    "target_logprobs": "target laws as log-probabilities [k + 1, vocab]",
    "target_logits": "target laws as logits [k + 1, vocab]",
    "bonus_probs": "the target law after all draft tokens [vocab], where it comes apart",
    "bonus_logprobs": "the same as log-probabilities [vocab]",
    "bonus_logits": "the same as logits [vocab]",
    "bonus_token_id": "a token already drawn from that law",
    "target_token_ids": "a token already drawn from each target law [k + 1]",
    "rng": "a random generator (numpy, torch or random.Random), or a function that returns a uniform",
    "seed": "an integer seed",
    "uniforms": "uniforms for the accept tests [k]",
    "final_uniform": "one uniform for the residual or bonus token",
    "num_draft_tokens": "k, or k of each row",
    "cumulative_num_draft_tokens": "running sum of k over the rows",
    "max_num_draft_tokens": "the largest k of the batch",
    "num_prefix_tokens": "how many tokens are committed",
    "vocab_size": "size of the vocabulary",
    "parents": "for a draft tree, the parent of each draft token, -1 for the first ones [k]",
}

_WORDS = {
    "draft": {"draft", "drafts", "drafted", "drafter", "candidate", "candidates", "assistant", "proposal", "proposals",
              "proposed", "spec", "speculative", "speculated", "small", "aux", "guess", "guesses", "q", "approx", "ssm",
              "gen"},
    "target": {"target", "tgt", "main", "big", "large", "verifier", "verify", "model", "base", "oracle", "p", "teacher",
               "new", "llm", "full"},
    "bonus": {"bonus", "extra"},
    "logprobs": {"logprob", "logprobs", "logp", "logq", "lp"},
    "logits": {"logit", "logits", "scores"},
    "probs": {"prob", "probs", "probabilities", "probability", "dist", "dists", "distribution", "distributions", "law",
              "laws", "softmax", "p", "q"},
    "ids": {"id", "ids", "token", "tokens", "tok", "toks"},
}  # fmt: skip

_EXACT: Mapping[str, tuple[str, ...]] = {
    "draft_token_ids": ("x", "ids", "tokens", "token_ids", "draft", "drafts", "candidates", "proposal", "proposals",
                        "proposed", "guesses", "drafted"),
    "rng": ("rng", "generator", "gen", "random_state", "prng", "np_rng", "random", "rand", "rand_fn", "torch_generator",
            "random_generator", "uniform_fn", "rngs", "generators"),
    "seed": ("seed", "random_seed", "rng_seed"),
    "uniforms": ("u", "us", "uniforms", "uniform", "uniform_samples", "coins", "rand_values", "rand_vals",
                 "random_numbers", "random_values", "accept_uniforms", "uniform_probs", "uniform_rand",
                 "uniform_random", "uniform_values", "r", "rs", "randoms"),
    "final_uniform": ("final_uniform", "u_final", "u_resample", "u_residual", "residual_uniform", "u_bonus",
                      "bonus_uniform", "resample_uniform", "uniform_samples_for_final_sampling", "u_last", "u_next"),
    "num_draft_tokens": ("k", "gamma", "num_draft_tokens", "num_speculative_tokens", "n_draft", "candidate_length",
                         "draft_len", "draft_length", "spec_len", "lookahead", "num_drafts", "speculation_length",
                         "num_draft", "draft_lengths", "draft_lens", "n_drafts", "num_spec_tokens"),
    "cumulative_num_draft_tokens": ("cu_num_draft_tokens", "cumulative_num_draft_tokens", "cu_draft_lens",
                                    "cu_num_drafts"),
    "max_num_draft_tokens": ("max_spec_len", "max_num_draft_tokens", "max_draft_len", "max_draft_length"),
    "parents": ("parents", "parent", "parent_ids", "tree_parents", "parent_indices"),
    "vocab_size": ("vocab_size", "n_vocab", "num_vocab", "vocab"),
    "prefix_token_ids": ("prefix", "prefix_ids", "prefix_tokens", "prefix_token_ids", "prompt", "prompt_ids",
                         "prompt_tokens", "prompt_token_ids", "context", "context_ids", "context_tokens", "history",
                         "committed", "inp"),
    "num_prefix_tokens": ("prefix_len", "prefix_length", "prompt_len", "prompt_length", "context_len", "context_length",
                          "cur_len", "num_prefix_tokens"),
    "target_token_ids": ("target_token_ids", "target_ids", "target_tokens", "target_samples", "posterior",
                         "target_predict", "sampled_token_ids", "target_sampled_ids"),
    "bonus_token_id": ("bonus_token_id", "bonus_token", "bonus_token_ids", "bonus_id", "bonus_ids", "bonus_tokens"),
}  # fmt: skip

# A required parameter of one of these names gets this value: with laws made by us, no other one is meant.
NEUTRAL_VALUES: Mapping[str, Any] = {
    "temperature": 1.0, "temp": 1.0, "device": "cpu", "greedy": False, "eos_token_id": -1,
}  # fmt: skip
# Words after which "log" makes a law of log-probabilities, as in target_log_probs.
_AFTER_LOG = {"p", "q", "prob", "probs", "probability", "probabilities", "softmax"}


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function by what they mean.

    roles: role to parameter name. unplaced: required parameters whose meaning is not known.
    swappable: the names p and q were used, which sources use both ways round.
    """

    roles: Mapping[str, str]
    unplaced: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()
    swappable: bool = False


def infer_roles(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, str], taken: set[str]) -> Parameters:
    """Places the parameters by their names; `given` (role to name) was said by the user, `taken` is filled otherwise.

    Optional parameters with an unknown name keep their default.
    """
    roles = dict(given)
    used = set(given.values()) | taken
    unplaced: list[str] = []
    neutral: list[str] = []
    half_known: list[tuple[str, str]] = []
    for name, parameter in parameters.items():
        if name in used or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        role, form = _role_of(name)
        is_optional = parameter.default is not parameter.empty
        if role == "num_draft_tokens" and is_optional and parameter.default is None:
            continue
        if role and role not in roles and not _is_settled(role, roles):
            roles[role] = name
        elif form and not is_optional:
            half_known.append((form, name))
        elif is_optional:
            continue
        elif name in NEUTRAL_VALUES:
            neutral.append(name)
        else:
            unplaced.append(name)
    _place_inputs(roles)
    for form, name in half_known:
        missing = [side for side in ("target", "draft") if not _law_role(side, roles)]
        if len(half_known) == 1 and missing:
            roles[f"{missing[0]}_{form}"] = name
        else:
            unplaced.append(name)
    letters = {roles.get(role, "").lower().split("_")[0] for role in ("draft_probs", "target_probs")}
    swappable = letters == {"p", "q"} and not {"draft_probs", "target_probs"} & set(given)
    return Parameters(roles, tuple(unplaced), tuple(neutral), swappable)


def _law_role(side: str, roles: Mapping[str, str]) -> str:
    """The role that carries the laws of that side, or an empty string."""
    return next((f"{side}_{form}" for form in FORMS if f"{side}_{form}" in roles), "")


def _is_settled(role: str, roles: Mapping[str, str]) -> bool:
    """Whether another role already says the same thing (a law as logits and again as probabilities)."""
    side = role.split("_")[0]
    return role in {f"{side}_{form}" for form in FORMS} and bool(_law_role(side, roles))


def _place_inputs(roles: dict[str, str]) -> None:
    """`input_ids` ends with the draft tokens where nothing else holds them, and is the prefix otherwise."""
    name = roles.pop("input", None)
    if name is None:
        return
    if "draft_token_ids" not in roles and "sequence_token_ids" not in roles:
        roles["sequence_token_ids"] = name
    elif "prefix_token_ids" not in roles:
        roles["prefix_token_ids"] = name


def _role_of(name: str) -> tuple[str, str]:
    """(role, form) that the name gives away; a form without a role where the side is not named."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    for role, names in _EXACT.items():
        if plain in names or plain == role:
            return role, ""
    if plain in ROLES:
        return plain, ""
    words = plain.split("_")
    if "log" in words:
        words = ["logprob" if word in _AFTER_LOG else word for word in words]
    found = set(words)
    if "input" in found or "inputs" in found:
        return "input", ""
    side = next((side for side in ("bonus", "draft", "target") if found & _WORDS[side]), "")
    if plain in ("logp", "logq", "log_p", "log_q", "lp", "lq"):
        side = "target" if plain.endswith("p") else "draft"
        return f"{side}_logprobs", ""
    form = next((form for form in ("logprobs", "logits", "probs") if found & _WORDS[form]), "")
    if side and form:
        return f"{side}_{form}", ""
    if form:
        return "", form
    if found & _WORDS["ids"]:
        return {"draft": "draft_token_ids", "target": "target_token_ids", "bonus": "bonus_token_id"}.get(side, ""), ""
    return "", ""


def signature_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of a function, or None where Python cannot tell (some compiled functions)."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def require_known_names(
    function_name: str, names: Mapping[str, str], parameters: Mapping[str, inspect.Parameter]
) -> None:
    """Raises UsageError for a role that does not exist or a parameter that the function does not have."""
    import difflib

    has_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for role, name in names.items():
        if role not in ROLES:
            near = difflib.get_close_matches(role, ROLES, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(f"verified(...) has no argument {role!r}; {hint}It takes: {', '.join(ROLES)}")
        if not isinstance(name, str):
            raise UsageError(
                f"verified({role}={name!r}): give the name of the parameter of {function_name} as a string, "
                f"one of {', '.join(parameters)}"
            )
        if name not in parameters and not has_any:
            raise UsageError(
                f"{function_name} has no parameter {name!r} (given for {role}); it has {', '.join(parameters)}"
            )
    doubled = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if doubled:
        raise UsageError(f"parameter {doubled[0]!r} of {function_name} was given for two meanings; give each its own")


def refusal(function_name: str, found: Parameters, missing: list[str]) -> str:
    """What could be placed, what could not, and the line to write."""
    placed = "".join(f"\n  {name:20} {role} ({ROLES[role]})" for role, name in found.roles.items())
    unplaced = "".join(f"\n  {name:20} ?" for name in found.unplaced)
    reasons = [f"it is not clear which one holds {what}" for what in missing]
    if found.unplaced:
        reasons.append(f"it is not clear what {', '.join(found.unplaced)} should be")
    example = ", ".join(f'{role}="{name}"' for role, name in found.roles.items())
    needed = [role for role in ("draft_token_ids", "draft_probs", "target_probs") if _wanted(role, found)]
    wanted = ", ".join(f'{role}="..."' for role in needed)
    constants = ", ".join(f'"{name}": ...' for name in found.unplaced)
    line = ", ".join(part for part in (example, wanted, f"constants={{{constants}}}" if constants else "") if part)
    return (
        f"cannot tell the parameters of {function_name} apart: {'; '.join(reasons)}.{placed}{unplaced}\n"
        f"Write, with the names filled in:  verified({line})\n"
        f"Laws may also be given as draft_logits=, draft_logprobs=, target_logits=, target_logprobs=."
    )


def _wanted(role: str, found: Parameters) -> bool:
    if role == "draft_token_ids":
        return role not in found.roles and "sequence_token_ids" not in found.roles
    return bool(found.unplaced or role == "target_probs") and not _law_role(role.split("_")[0], found.roles)
