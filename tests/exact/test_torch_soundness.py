"""What could make an enumerated law of torch code wrong: each is modelled exactly, or refused, never guessed."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

from specverify.exact.errors import NotEnumerable, ReusedRandomness, UnsoundEnumeration
from specverify.exact.torch_shadow import poison
from tests.exact import torch_subjects
from tests.exact.programs import trees
from tests.exact.torch_programs import assert_law, probabilities, torch_law, torch_program, tv

WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LAW = {0: 0.2, 1: 0.3, 2: 0.5}


def uniform(generator, *size):
    return torch.rand(*size, dtype=torch.float64, generator=generator)


# Memory ---------------------------------------------------------------------------------------------------------


def test_numbers_written_over_symbols_are_numbers():
    """A tensor that held random values and was overwritten is ordinary again; a symbol written into it is not."""

    def program(source):
        values = uniform(source.torch_generator(), 3)
        values.fill_(0.25)
        values[1] = uniform(source.torch_generator(), 1)[0]
        return (values < 0.3).long()

    assert_law({(1, 1, 1): 0.3, (1, 0, 1): 0.7}, program, calls=200)


def test_freed_memory_taints_nobody():
    """A tensor that gets the address of a freed random one is not random."""

    def program(source):
        generator = source.torch_generator()
        for _ in range(30):
            values = uniform(generator, 4)
            del values
            assert bool((torch.full((4,), 0.25, dtype=torch.float64) == 0.25).all())
        return (uniform(generator, 1) < 0.3).long()

    assert_law({(1,): 0.3, (0,): 0.7}, program)


def test_views_and_expansions_read_the_same_symbols():
    """One uniform seen through views, transposes and expansions is one uniform."""

    def program(source):
        values = uniform(source.torch_generator(), 1, 2)
        wide = values.expand(3, 2).t()
        return (wide[0] < torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64)).long()

    assert_law({(1, 1, 1): 0.2, (0, 1, 1): 0.3, (0, 0, 1): 0.2, (0, 0, 0): 0.3}, program, calls=200)


BUFFER = torch.zeros(2, dtype=torch.float64)


def test_random_numbers_of_an_earlier_call_are_refused():
    """A tensor kept between calls holds no usable values of the call before."""

    def program(source):
        before = int(BUFFER[0] < 0.5)
        BUFFER.uniform_(generator=source.torch_generator())
        return before

    with pytest.raises(NotEnumerable, match="keeps state"):
        probabilities(program)


def test_a_kept_buffer_that_is_overwritten_first_is_fine():
    """Reusing memory between calls is no state."""

    def program(source):
        BUFFER.uniform_(generator=source.torch_generator())
        return (BUFFER < 0.5).long()

    assert_law({(a, b): 0.25 for a in (0, 1) for b in (0, 1)}, program, calls=100)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_float_placeholders_are_nan_then_large(dtype):
    """Whoever reads memory unseen meets NaN, and in replays numbers of either sign."""
    placeholders = [torch.tensor(poison(dtype, seed), dtype=dtype).item() for seed in range(3)]

    assert np.isnan(placeholders[0])
    assert placeholders[1] < -1e4
    assert placeholders[2] > 1e4


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_integer_placeholders_are_no_tokens(dtype):
    """Integer placeholders lie outside every vocabulary, and change between replays."""
    first, second = (poison(dtype, seed) for seed in range(2))

    assert first < -30000
    assert second > 30000


@pytest.mark.parametrize("is_below", [True, False])
def test_memory_read_behind_torch_is_found_out(is_below):
    """An array that shares memory with a tensor shows placeholders; the law that follows from them is not accepted."""

    def program(source):
        values = torch.zeros(1, dtype=torch.float64)
        shared = values.numpy()
        values.uniform_(generator=source.torch_generator())
        return int(shared[0] < 0.5 if is_below else shared[0] > 0.5)

    with pytest.raises(NotEnumerable, match=r"not repeatable|calls impossible"):
        probabilities(program, calls=500)


@pytest.mark.parametrize(
    "leak",
    [
        lambda values: values.data_ptr() % 2,
        lambda values: int(np.from_dlpack(values)[0] < 0.5),
        lambda values: int(pickle.loads(pickle.dumps(values))[0] < 0.5),
        lambda values: int(float(values[0]) < 0.5),
        lambda values: int(np.asarray(values)[0] < 0.5),
    ],
)
def test_memory_handed_out_of_torch_is_refused(leak):
    """Pointers, pickles and arrays of random values end the enumeration."""
    with pytest.raises(NotEnumerable):
        probabilities(lambda source: leak(uniform(source.torch_generator(), 2)))


def test_deep_copies_are_copies_of_symbols():
    """copy.deepcopy copies the memory below the dispatcher."""

    def program(source):
        values = uniform(source.torch_generator(), 1)
        twin = copy.deepcopy(values)
        return [(values < 0.3).long(), (twin < 0.3).long()]

    assert_law({((1,), (1,)): 0.3, ((0,), (0,)): 0.7}, program, calls=200)


# Lists of tensors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda token: torch.tensor([token, token + 1]),
        lambda token: torch.tensor([[token[0], token[0] + 1]])[0],
        lambda token: torch.tensor([token.item(), token.item() + 1]),
        lambda token: torch.as_tensor([token[0], token[0] + 1]),
        lambda token: token.new_tensor([token[0], token[0] + 1]),
        lambda token: torch.stack([torch.tensor(token.item()), torch.as_tensor(token[0] + 1)]),
        lambda token: torch.cat([torch.tensor(token.tolist()), torch.asarray(token) + 1]),
        lambda token: torch.tensor([token, token + 1], dtype=torch.int32),
        lambda token: torch.tensor((token + torch.arange(2)).tolist()),
    ],
)
def test_tensors_built_from_lists_of_tensors_keep_their_symbols(build):
    """torch.tensor([...]) and its kin read tensors in the list below every dispatch mode."""

    def program(source):
        return build(torch.multinomial(WEIGHTS, 1, generator=source.torch_generator()))

    assert_law({(token, token + 1): share for token, share in LAW.items()}, program, calls=200)


def test_tolist_keeps_its_nesting():
    """A two-dimensional tensor gives nested lists."""

    def program(source):
        rows = uniform(source.torch_generator(), 2, 1).tolist()
        return [int(rows[0][0] < 0.3), int(rows[1][0] < 0.5)]

    assert_law({(1, 1): 0.15, (1, 0): 0.15, (0, 1): 0.35, (0, 0): 0.35}, program)


# Random streams -------------------------------------------------------------------------------------------------


def test_two_generators_of_one_seed_give_the_same_symbols():
    """Draft and verification seeded alike are not independent."""

    def program(source):
        first, second = (torch.Generator().manual_seed(5) for _ in range(2))
        return [int(uniform(first, 1) < 0.3), int(uniform(second, 1) < 0.3)]

    assert_law({(1, 1): 0.3, (0, 0): 0.7}, program, calls=200)


def test_a_stream_seeded_again_gives_the_same_symbols():
    """torch.manual_seed in the program starts the global stream again, element by element."""

    def program(source):
        torch.manual_seed(7)
        first = torch.rand(2) < 0.3
        torch.manual_seed(7)
        torch.rand(1)
        return [first[1].long(), (torch.rand(1)[0] < 0.3).long()]

    assert_law({(1, 1): 0.3, (0, 0): 0.7}, program, calls=200)


def test_a_restored_state_gives_the_same_symbols():
    """set_state and fork_rng rewind a stream."""

    def program(source):
        generator = source.torch_generator()
        state = generator.get_state()
        first = torch.multinomial(WEIGHTS, 1, generator=generator)
        generator.set_state(state)
        second = torch.multinomial(WEIGHTS, 1, generator=generator)
        with torch.random.fork_rng():
            third = torch.rand(1) < 0.3
        return [*first.tolist(), *second.tolist(), int(third), int(torch.rand(1) < 0.3)]

    wanted = {(t, t, c, c): LAW[t] * (0.3 if c else 0.7) for t in LAW for c in (0, 1)}
    assert_law(wanted, program, calls=200)


def test_one_seed_read_in_two_ways_is_refused():
    """What a multinomial and a uniform of the same generator state have to do with each other is not known."""

    def program(source):
        first, second = (torch.Generator().manual_seed(5) for _ in range(2))
        return [int(torch.multinomial(WEIGHTS, 1, generator=first)), int(uniform(second, 1) < 0.3)]

    with pytest.raises(ReusedRandomness, match="share a seed"):
        probabilities(program)


def test_noise_used_for_two_races_is_reused_randomness():
    """One noise field for draft and recovery is a finding about the program."""

    def program(source):
        noise = torch.empty(3, dtype=torch.float64).exponential_(generator=source.torch_generator())
        return [(WEIGHTS / noise).argmax(), (WEIGHTS.flip(0) / noise).argmax()]

    with pytest.raises(ReusedRandomness):
        probabilities(program)


def test_draws_in_another_thread_are_hidden():
    """Modes do not reach other threads, but the generator moved."""

    def program(source):
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.rand(1).item() < 0.3))
        thread.start()
        thread.join()
        return [int(found[0]), int(uniform(source.torch_generator(), 1) < 0.5)]

    with pytest.raises(NotEnumerable, match=r"hidden|not repeatable"):
        probabilities(program)


KEPT = torch.Generator().manual_seed(3)


def test_a_generator_kept_between_calls_starts_every_run_alike():
    """Its symbols are those of its place in its stream, and it is put back afterwards."""
    law = torch_law(lambda source: (uniform(KEPT, 2) < 0.3).long(), calls=200)

    assert law.probabilities[1, 1] == pytest.approx(0.09)
    assert law.cross_check.num_calls > 0


# Operations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (lambda u: u.sum() < 1, "closed form"),
        (lambda u: u[0] < u[1], "closed form|two"),
        (lambda u: u[0] * u[1] < 0.5, "closed form|product"),
        (lambda u: torch.softmax(u, 0)[0] < 0.5, "not modelled"),
        (lambda u: torch.sin(u)[0] < 0.5, "not modelled"),
        (lambda u: u.max() < 0.5, "not only its position|no exponential"),
        (lambda u: torch.ones(3)[(u * 3)] > 0, "not modelled|IndexError|index"),
        (lambda u: torch.clamp(torch.ones(2), max=u)[0] < 0.5, "closed form"),
        (lambda u: torch.zeros(2).index_add(0, torch.tensor([0, 0]), u.float())[0] < 0.5, "not modelled"),
    ],
)
def test_operations_without_a_closed_form_are_refused(decide, reason):
    """An operation that is not in the list is refused with the line that called it."""

    def program(source):
        return int(decide(torch.rand(2, dtype=torch.float64, generator=source.torch_generator())))

    with pytest.raises(NotEnumerable, match=reason) as caught:
        probabilities(program)
    assert "test_torch_soundness.py" in caught.value.source_line


def test_a_swallowed_refusal_still_ends_the_enumeration():
    """A program that catches everything cannot go on with what it caught."""

    def program(source):
        generator = source.torch_generator()
        try:
            return int(torch.randn(1, generator=generator) > 0)
        except Exception:
            return int(uniform(generator, 1) < 0.5)

    with pytest.raises(NotEnumerable, match="not modelled"):
        probabilities(program)


def test_only_the_prefix_up_to_the_first_rejection_is_looked_at():
    """k accept tests cost k + 1 runs in every spelling, not 2^k."""
    chances = torch.full((6,), 0.5, dtype=torch.float64)
    spellings = [
        lambda accepted: accepted.long().cumprod(0).sum(),
        lambda accepted: ((~accepted).cumsum(-1) < 1).sum(),
        lambda accepted: torch.cat([~accepted, torch.tensor([True])]).int().argmax(),
        lambda accepted: accepted.cumprod(0).count_nonzero(),
        lambda accepted: torch.tensor(6) if accepted.all() else (~accepted).float().argmax(),
        lambda accepted: (accepted & torch.ones(6, dtype=torch.bool)).to(torch.int32).cumprod(-1).sum(-1),
        lambda accepted: accepted.float().cumprod(0).sum().long(),
    ]
    for spell in spellings:
        law = torch_law(lambda source, spell=spell: int(spell(uniform(source.torch_generator(), 6) < chances)))
        assert law.num_runs == 7
        assert law.probabilities[6] == pytest.approx(0.5**6)


def test_a_draw_compared_with_a_token_forks_in_two():
    """Matching a drawn token with a draft token asks one question of it."""

    def program(source):
        drawn = torch.multinomial(torch.ones(50, dtype=torch.float64), 1, generator=source.torch_generator())
        return int(drawn[0] == 7)

    law = torch_law(program)
    assert law.num_runs <= 2
    assert law.probabilities[1] == pytest.approx(0.02)


@pytest.mark.parametrize("guard", [1e-20, 1e-30])
def test_a_guard_against_zero_is_dropped_and_recorded(guard):
    """clamp(min=1e-20) changes a uniform with probability 1e-20: dropped, and its mass is in the law."""

    def program(source):
        noise = uniform(source.torch_generator(), 3).clamp(min=guard)
        return (WEIGHTS.log() - torch.log(-torch.log(noise))).argmax()

    law = torch_law(program, calls=200)
    assert 0 < law.clipped_mass < 4 * guard
    assert law.probabilities[2] == pytest.approx(0.5, abs=1e-12)


def test_a_clamp_that_matters_is_forked():
    """A clamp that changes a value often is decided like a comparison."""
    assert_law(
        {1: 0.4, 0: 0.6},
        lambda source: int(uniform(source.torch_generator(), 1).clamp(min=0.4) <= 0.4),
        calls=200,
    )


def test_attention_without_dropout_is_not_random():
    """Scaled dot product attention is tagged random for its dropout only."""

    def program(source):
        heads = torch.ones(1, 1, 3, 4)
        out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return int(uniform(source.torch_generator(), 1) < out[0, 0, 0, 0] / 4)

    assert_law({1: 0.25, 0: 0.75}, program)


@pytest.mark.parametrize("verify", torch_subjects.STYLES.values(), ids=torch_subjects.STYLES)
def test_inference_mode_changes_nothing(verify):
    """Tensors made in inference mode bring whole composite operations to the dispatcher."""
    target, draft = trees(3)

    @torch.inference_mode()
    def verify_in_inference_mode(*arguments):
        return verify(*arguments)

    law = torch_law(torch_program(verify_in_inference_mode, target, draft, 2), calls=100)

    assert tv(law, target) < 1e-12


def test_tensors_that_leave_inference_mode_are_followed():
    """Composite operations on inference tensors outside of inference mode are taken apart."""

    def program(source):
        with torch.inference_mode():
            accepted = uniform(source.torch_generator(), 3) < 0.5
        return accepted.long().cumprod(0).sum()

    assert_law({3: 0.125, 2: 0.125, 1: 0.25, 0: 0.5}, program, calls=100)


def test_compiled_functions_are_enumerated_uncompiled():
    """torch.compile'd code runs as the Python that it was made from; ordinary calls run it compiled."""
    compiled = torch.compile(lambda values: (values < 0.5).long().cumprod(0).sum(), backend="eager")

    assert_law({2: 0.25, 1: 0.25, 0: 0.5}, lambda source: compiled(uniform(source.torch_generator(), 2)), calls=20)


def test_code_that_insists_on_ints_gets_ints():
    """Undecided numbers that no type check takes are decided in a second attempt."""

    def program(source):
        token = torch.multinomial(WEIGHTS, 1, generator=source.torch_generator()).item()
        return token if isinstance(token, int) else -1

    assert_law(LAW, program, calls=100)


def test_a_wrong_law_is_not_accepted():
    """Ordinary calls that contradict an enumerated law end it: here a program that sees who is watching."""

    def program(source):
        generator = source.torch_generator()
        is_watched = "Symbolic" in type(source).__name__
        return (uniform(generator, 1) < (0.5 if is_watched else 0.9)).long()

    with pytest.raises(UnsoundEnumeration, match="contradict"):
        probabilities(program, calls=500)
