"""Generators are found wherever they were made: before the heap came to rest, since, and after."""

from __future__ import annotations

import gc
import random

import pytest

from specverify.exact.heap import at_rest, live_objects


def num_of(kind: type, *types: type) -> int:
    return sum(type(thing) is kind for thing in live_objects((kind, *types)))


def test_old_and_young_objects_are_found() -> None:
    class Kind:
        pass

    old = [Kind(), Kind()]
    with at_rest():
        assert num_of(Kind) == 2
        young = [Kind()]
        assert num_of(Kind) == 3
        del young[:]
        assert num_of(Kind) == 2
    assert num_of(Kind) == len(old)
    assert gc.get_freeze_count() == 0


def test_another_type_is_looked_for_everywhere() -> None:
    class Kind:
        pass

    class Other:
        pass

    objects = [Kind(), Other(), Other()]
    with at_rest():
        assert num_of(Kind) == 1
        assert num_of(Other, random.Random) == 2
        objects.append(Kind())
        assert num_of(Kind, Other) == 2
    assert gc.get_freeze_count() == 0


def test_blocks_nest_and_end_after_an_error() -> None:
    class Kind:
        def __truediv__(self, number: int) -> float:
            return 1 / number

    thing = Kind()
    with at_rest():
        with pytest.raises(ZeroDivisionError), at_rest():
            live_objects((Kind,))[0] / 0
        assert gc.get_freeze_count() > 0
        assert num_of(Kind) == 1
    assert gc.get_freeze_count() == 0
    assert live_objects((Kind,)) == [thing]


def test_what_the_process_froze_itself_stays_frozen() -> None:
    class Kind:
        pass

    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with at_rest():
            live_objects((Kind,))
            young = Kind()
            assert live_objects((Kind,)) == [young]
        assert gc.get_freeze_count() >= frozen - 100  # some of them died meanwhile
    finally:
        gc.unfreeze()


def test_what_the_subject_freezes_meanwhile_stays_frozen() -> None:
    class Kind:
        pass

    with at_rest():
        live_objects((Kind,))
        kept = [Kind() for _ in range(1000)]
        gc.freeze()
    try:
        assert gc.get_freeze_count() > len(kept)
    finally:
        gc.unfreeze()
