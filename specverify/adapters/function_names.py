"""What a parameter of a verify function can mean, and the names that give a meaning away. Imports no numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

WORDS = {
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

EXACT: Mapping[str, tuple[str, ...]] = {
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
    "is_done_candidate": False,
}  # fmt: skip
# Words after which "log" makes a law of log-probabilities, as in target_log_probs.
AFTER_LOG = {"p", "q", "prob", "probs", "probability", "probabilities", "softmax"}
