"""Adapter for Hugging Face transformers: assisted generation with a draft model, prompt lookup or an early exit.

It calls the public generate() as a user would. Assisted generation takes one sequence at a time, so requests run
one after another. Written against transformers 5.24 (generation/utils.py, _assisted_decoding).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from specverify.adapters import transformers_options as asked
from specverify.adapters.transformers_loading import (
    first_layers,
    import_transformers,
    load_model,
    load_tokenizer,
    quiet,
    seeded,
    threads,
    without_advice,
)
from specverify.adapters.transformers_options import MODES, checked_exit_layer
from specverify.adapters.transformers_recorder import StepRecorder, cache_rows, raw_log_probs
from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.scenario import Scenario
from specverify.core.types import Array, Request, Trace

__all__ = ["MODES", "TransformersEngine"]

_ALWAYS = (
    Capability.GENERATE, Capability.IN_PROCESS_RANDOMNESS, Capability.SCORE, Capability.SAMPLING, Capability.SEED,
    Capability.STOP, Capability.GRAMMAR,
)  # fmt: skip


class TransformersEngine:
    """One target model with one way of drafting.

    target, draft: checkpoint directories, or models. early_exit_layer: layers that an early exit runs (half by
    default). ensemble_weight: the target's share; below 1, transformers verifies against a mixture with the draft's
    law. lossy_by_design: why that is meant; without a reason it is judged as a broken promise.
    generate_options: further options of generate(), as given. checkpoint: the probe pair that was loaded, if any.
    num_threads: torch threads while generating; 1 is fastest for tiny models.
    max_new_tokens: length of the suite's standard runs, where the model is slow. batch_size: how many requests the
    suite should hand over at a time, one after another as they run. is_slow: checks share their runs even where
    they would like larger ones. left_out: check ids, and why not here.
    record_*: what a trace holds. Laws cost 16 bytes a step for each draft token and vocabulary entry, KV rows far more.
    """

    def __init__(
        self, target: Any, draft: Any | None = None, *, mode: str = "assistant", num_draft_tokens: int = 3,
        dtype: str = "float64", device: str | None = None, early_exit_layer: int | None = None,
        ensemble_weight: float | None = None, lossy_by_design: str = "",
        generate_options: Mapping[str, Any] | None = None, checkpoint: Any | None = None,
        scenarios: Sequence[Scenario] | None = None, name: str | None = None, num_threads: int | None = 1,
        max_new_tokens: int | None = None, batch_size: int = 2, is_slow: bool = False,
        left_out: Mapping[str, str] | None = None, record_steps: bool = True, record_laws: bool = True,
        record_kv_rows: bool = False,
    ) -> None:  # fmt: skip
        asked.refuse_contradictions(mode, draft, num_draft_tokens, ensemble_weight)
        self._transformers = import_transformers()
        self._sources = {"target": target} | ({"draft": draft} if mode == "assistant" else {})
        self.mode = mode
        self.name = name or f"transformers {mode}"
        self.num_draft_tokens = num_draft_tokens
        self.ensemble_weight = ensemble_weight
        self.lossy_by_design = lossy_by_design
        self.target = load_model(target, dtype=dtype, device=device, role="target")
        self.draft = load_model(draft, dtype=dtype, device=device, role="draft") if mode == "assistant" else None
        self.dtype = str(self.target.dtype).removeprefix("torch.")
        self.early_exit_layer = checked_exit_layer(self.target, early_exit_layer) if mode == "early-exit" else None
        self.checkpoint = checkpoint
        self.batch_size = batch_size
        self.is_slow = is_slow
        self.left_out = dict(left_out or {})
        self.record_steps = record_steps
        self.record_laws = record_laws
        self.record_kv_rows = record_kv_rows
        self._options = dict(generate_options or {})
        self._num_threads = num_threads
        self._configs: dict[tuple[Any, ...], Any] = {}
        self._tokenizers: dict[str, Any] | None = None
        if scenarios is not None:
            self.scenarios = tuple(scenarios)
        if max_new_tokens is not None:
            self.max_new_tokens = max_new_tokens

    @property
    def lossy_option(self) -> str:
        """The option that makes the output lossy, if one is on. It excuses nothing; the distance is measured too."""
        if self.ensemble_weight in (None, 1.0):
            return ""
        return f"assistant_ensemble_weight={self.ensemble_weight} mixes the draft's law into the target's"

    @property
    def proposer(self) -> str:
        """What drafts: the draft model as loaded, the text so far, or the target's own first layers."""
        return {"assistant": "draft-model", "prompt-lookup": "n-gram"}.get(self.mode, self.mode)

    @property
    def drafts_stop_before_end(self) -> bool:
        """Prompt lookup cuts a draft before the first end token in it, so none is ever inside."""
        return self.mode == "prompt-lookup"

    @property
    def capabilities(self) -> frozenset[Capability]:
        is_watched = self.record_steps and self._is_watchable
        has_draft_model = self.mode != "prompt-lookup"
        shown = dict.fromkeys(_ALWAYS, True) | {
            Capability.LOSSY_BY_DESIGN: bool(self.lossy_by_design or self.lossy_option),
            Capability.LOAD_CHECKPOINT: self.checkpoint is not None,
            Capability.TOKENIZER: self.mode == "assistant" and len(self.tokenizers) == 2,
            Capability.TRACE: is_watched,
            Capability.PROMPT_LOOKUP: not has_draft_model,
            Capability.KV_LENGTH: is_watched,
            Capability.POSITIONS: is_watched,
            Capability.LOGPROBS: self._reports_log_probs,
            Capability.TARGET_PROBS: is_watched and self.record_laws,
            Capability.DRAFT_PROBS: is_watched and self.record_laws and has_draft_model,
            Capability.DRAFT_KV: is_watched and has_draft_model,
            Capability.KV_ROWS: is_watched and self.record_kv_rows,
        }
        return frozenset(capability for capability, is_shown in shown.items() if is_shown)

    @property
    def _reports_log_probs(self) -> bool:
        return self.record_steps and self.record_laws

    @property
    def _is_watchable(self) -> bool:
        """The recorder stands on a method that is not public; a release without it still generates."""
        return hasattr(self.target, "_get_candidate_generator")

    @property
    def vocab_sizes(self) -> dict[str, int]:
        """Rows of the embedding of target and draft."""
        models = {"target": self.target} | ({"draft": self.draft} if self.draft is not None else {})
        return {role: int(model.config.get_text_config().vocab_size) for role, model in models.items()}

    @property
    def tokenizers(self) -> dict[str, Any]:
        """Tokenizers of target and draft, where their checkpoints bring them."""
        if self._tokenizers is None:
            loaded = {role: load_tokenizer(source) for role, source in self._sources.items()}
            self._tokenizers = {role: tokenizer for role, tokenizer in loaded.items() if tokenizer is not None}
        return self._tokenizers

    def generate(self, requests: Sequence[Request], *, speculate: bool) -> list[Trace]:
        """Runs the requests one after another. A request without a seed draws from torch's global generator."""
        return [self._trace(request, speculate) for request in requests]

    def quiet(self) -> TransformersEngine:
        """The same engine, models shared, recording steps without laws and rows: for thousands of tokens."""
        silent = copy.copy(self)
        silent.record_laws = silent.record_kv_rows = False
        return silent

    def generate_tensor(self, request: Request, *, speculate: bool) -> torch.Tensor:
        """The new token ids as a tensor [tokens], unread: what an enumeration of the whole call wants.

        Nothing is recorded, so that no token is looked at that the engine itself does not look at.
        """
        sequence: torch.Tensor = self._call(request, speculate)
        return sequence[0, len(request.prompt_token_ids) :]

    def score(self, prompt_token_ids: Sequence[int], token_ids: Sequence[int]) -> Array:
        """Log-probabilities of every token after each prefix, in one teacher-forced pass -> [tokens, vocab].

        The pass runs in the target's own dtype; the logarithm of the softmax is taken in float64.
        """
        ids = torch.tensor([(*prompt_token_ids, *token_ids)], device=self.target.device)
        with threads(self._num_threads), torch.no_grad():
            logits = self.target(input_ids=ids, use_cache=False).logits[0, len(prompt_token_ids) - 1 : -1]
        log_probs: Array = logits.double().log_softmax(dim=-1).cpu().numpy()
        return log_probs

    def prefill_kv_rows(self, model: str, token_ids: Sequence[int]) -> Array:
        """KV rows after one fresh pass over the tokens -> [layers, 2, tokens, heads, head_dim]."""
        ids = torch.tensor([tuple(token_ids)], device=self.target.device)
        with threads(self._num_threads), torch.no_grad(), self._network(model) as network:
            rows = network(input_ids=ids, use_cache=True).cache
        return cache_rows(rows)

    def _call(self, request: Request, speculate: bool, **options: Any) -> Any:
        """What generate() returns for the request; options: further ones of generate()."""
        config = self._config(request, speculate)
        if speculate and self.draft is not None:
            options["assistant_model"] = self.draft
        if request.constraint is not None:
            vocab_size = self.vocab_sizes["target"]
            options["prefix_allowed_tokens_fn"] = asked.allowed_tokens(request, vocab_size)
        # These options are read from the drafting model's own config; an early exit's drafter is the target itself.
        asked.fix_draft_length(self.draft if self.draft is not None else self.target, self.num_draft_tokens)
        prompt = torch.tensor([request.prompt_token_ids], device=self.target.device)
        with without_advice(), threads(self._num_threads), seeded(request.seed, self.target.device):
            return self.target.generate(prompt, generation_config=config, **options)

    def _tokens_and_log_probs(self, request: Request, speculate: bool) -> tuple[list[int], tuple[float, ...] | None]:
        """The new token ids, and their log-probabilities where those are declared."""
        if not self._reports_log_probs:
            return self.generate_tensor(request, speculate=speculate).tolist(), None
        made = self._call(request, speculate, output_logits=True, return_dict_in_generate=True)
        token_ids = made.sequences[0, len(request.prompt_token_ids) :]
        return token_ids.tolist(), raw_log_probs(made.logits, token_ids)

    def _trace(self, request: Request, speculate: bool) -> Trace:
        recorder = None
        if speculate and self._is_watchable:
            recorder = StepRecorder(
                counts_only=not self.record_steps, laws=self.record_laws, kv_rows=self.record_kv_rows
            )
        with recorder.watching(self.target, self.draft) if recorder else nullcontext():
            token_ids, log_probs = self._tokens_and_log_probs(request, speculate)
        ended = bool(token_ids) and token_ids[-1] in request.eos_token_ids
        return Trace(
            request=request,
            token_ids=tuple(token_ids),
            steps=recorder.steps(is_greedy=request.sampling.is_greedy) if recorder and self.record_steps else (),
            speculated=speculate,
            # An assisted call drafts from the prompt: its first forward pass already verifies, so no token comes
            # from a prefill of its own.
            first_from_prefill=0 if speculate else 1,
            # The drafter always forgets one row more than it must: it crops to two below the committed length.
            draft_kv_lag=2 if speculate and self.mode != "prompt-lookup" else None,
            num_proposed=recorder.num_proposed if recorder else None,
            num_accepted=recorder.num_accepted if recorder else None,
            finish_reason="stop" if ended else "length",
            log_probs=log_probs,
        )

    def _config(self, request: Request, speculate: bool) -> Any:
        """The generation config of a request; requests that differ only in prompt and seed share one."""
        key = (request.sampling, request.max_new_tokens, request.eos_token_ids, speculate)
        if key not in self._configs:
            options = asked.sampling_options(request.sampling)
            options["max_new_tokens"] = request.max_new_tokens
            options["eos_token_id"] = list(request.eos_token_ids) or None
            if speculate:
                options |= asked.drafting_options(
                    self.mode, self.num_draft_tokens, self.early_exit_layer, self.ensemble_weight
                )
            with quiet():
                self._configs[key] = self._transformers.GenerationConfig(**(options | self._options))
        return self._configs[key]

    def _network(self, model: str) -> AbstractContextManager[Any]:
        """What plays the named part; an early exit's draft is the target's first layers."""
        if model not in ("target", "draft"):
            raise UsageError(f"there is no model {model!r}; choose from target, draft")
        if model == "target" or self.mode == "assistant":
            return nullcontext(self.target if model == "target" else self.draft)
        if self.early_exit_layer is None:
            raise UsageError("prompt lookup has no draft model; ask for the target's rows")
        return first_layers(self.target, self.early_exit_layer)
