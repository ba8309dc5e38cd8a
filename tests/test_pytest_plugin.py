"""The plugin in other people's suites: outcomes become pass, skip, fail and strict xfail, under xdist too."""

from __future__ import annotations

from pathlib import Path

import pytest

from specverify import catalogue
from specverify.adapters.reference import reference_engine
from specverify.exact.program import default_front_ends

# pytester takes modules away that a run in this process imported. torch does not survive a second import, and of ours
# later tests would meet some twice: a package keeps those it had as attributes.
catalogue.all_checks()
reference_engine()
default_front_ends()
GOLDEN = Path(__file__).parent.parent / "golden"

SUITE = """
from specverify import parametrize_with_checks
from specverify.reference.subject import reference_subject

def make_engine():
    return reference_subject(proposer={proposer!r})

@parametrize_with_checks({{"mine": make_engine}}, select={select!r}, known_failures={known!r}, profile={profile!r})
def test_speculation(subject, check):
    check(subject)
"""

KNOWN = """
import numpy as np
from specverify import parametrize_with_checks

def verify(draft_token_ids, draft_probs, target_probs, rng):
    return [int(rng.integers(target_probs.shape[1]))]

KNOWN = {"lossless.step-law": "issue 412"}

@parametrize_with_checks({"mine": verify}, select=list(KNOWN), known_failures=KNOWN)
def test_speculation(subject, check):
    check(subject)
"""
RAISES = """
from specverify import parametrize_with_checks

def make():
    raise RuntimeError("no GPU here")

@parametrize_with_checks({"mine": make}, select=["tokens.at-most-max-tokens"])
def test_speculation(subject, check):
    check(subject)
"""
DIES = """
from specverify.core.capabilities import Capability

class Engine:
    name = "dying"
    capabilities = frozenset({Capability.GENERATE, Capability.TRACE})

    def generate(self, requests, *, speculate):
        raise RuntimeError("out of memory")

def make():
    return Engine()
"""
ENGINE = """
from specverify.core.capabilities import Capability
from specverify.core.types import Trace

class Engine:
    name = "one token too many"
    capabilities = frozenset({Capability.GENERATE})

    def generate(self, requests, *, speculate):
        return [Trace(request, (5,) * (request.max_new_tokens + 1)) for request in requests]

def make(size=1):
    return Engine()
"""


def suite(pytester, *, select, proposer="draft-model", known=None, profile=None, args=()):
    pytester.makepyfile(SUITE.format(select=select, proposer=proposer, known=known, profile=profile))
    if "-n" in args:  # xdist's controller ends the process it runs in
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)
    # In this process: importing torch once a test would take longer than the tests.
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest", *args)


def test_a_passing_check_says_what_it_was_worth(pytester):
    """The terminal summary has the worth of every pass."""
    result = suite(pytester, select=["tokens.prefix-termination"])

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*passed  tokens.prefix-termination  mine  *steps*"])


def test_under_xdist_the_worth_still_arrives(pytester):
    """Workers hand their results to the controller."""
    result = suite(pytester, select=["tokens.*"], args=("-n", "2"))

    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(["*passed  tokens.prefix-termination  mine  *steps*"])


def test_unsupported_checks_are_counted_and_not_listed(pytester):
    """One line a subject: what it would have to declare, and for how many checks."""
    result = suite(pytester, select=["tokens.*", "tree.*", "draft.*"], proposer="n-gram")

    lines = [line for line in result.stdout.lines if line.startswith("unsupported  ")]
    assert len(lines) == 1
    assert "declare " in lines[0]


def test_a_known_failure_is_not_listed_as_failed(pytester):
    """It is an xfail, and the summary gives the reason."""
    pytester.makepyfile(KNOWN)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

    result.assert_outcomes(xfailed=1)
    result.stdout.fnmatch_lines(["known failure  lossless.step-law  mine   issue 412"])


def test_select_on_the_command_line_holds_for_ones_own_tests(pytester):
    """Other checks are deselected; a pattern that matches nothing is a usage error."""
    args = ("--specverify-select", "tokens.prefix-*")
    suite(pytester, select=["tokens.*"], args=args).assert_outcomes(passed=1, deselected=4)

    result = suite(pytester, select=["tokens.*"], args=("--specverify-select", "kv.no-such"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_factory_that_raises_fails_its_tests_in_one_sentence(pytester):
    """The reader sees the line of the factory, not our calls around it."""
    pytester.makepyfile(RAISES)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*mine raised RuntimeError: no GPU here (raised at *, in make)*"])
    result.stdout.no_fnmatch_line("*resolve.py*")


@pytest.mark.parametrize("engine", ["no_such_module:make", "nosuch"])
def test_a_wrong_engine_under_xdist_ends_in_one_sentence(pytester, engine):
    """The controller sees it before any worker starts."""
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--pyargs", "specverify.properties", "--engine", engine, "-n", "2"
    )  # fmt: skip
    text = result.stderr.str() + result.stdout.str()

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "cannot import no_such_module" in text or "names nothing to check" in text
    assert "INTERNALERROR" not in text


def test_an_engine_that_cannot_be_built_under_xdist_is_an_error_of_the_collection(pytester):
    """Workers find out, and cannot end the session: each says it in one sentence."""
    pytester.makepyfile(engines="def make():\n    raise RuntimeError('no GPU here')\n")
    result = pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "--pyargs", "specverify.properties", "--engine", "engines:make", "-n", "2"
    )  # fmt: skip

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*engines:make raised RuntimeError: no GPU here*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_an_engine_that_dies_in_a_replay_fails_its_golden_traces(pytester):
    """A trace that did not repeat has not passed."""
    pytester.makepyfile(engines=DIES)
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", str(GOLDEN.parent / "properties" / "test_golden.py"), "--engine", "engines:make",
        "--golden", str(GOLDEN),
    )  # fmt: skip

    assert result.parseoutcomes()["failed"] == 3
    result.stdout.fnmatch_lines(["*asked for request 0, raised RuntimeError: out of memory*"])


def test_the_rerun_line_has_the_options_of_the_engine(pytester):
    """Copied to a terminal, it judges the same engine as much as the test did."""
    pytester.makepyfile(engines=ENGINE)
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--pyargs", "specverify.properties", "--engine", "engines:make",
        "--engine-option", "size=3", "--specverify-effort", "0.5", "--specverify-select", "tokens.at-most-max-tokens",
    )  # fmt: skip

    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*Rerun    specverify check engines:make --option size=3 --effort 0.5 --select tokens.at-most*"]
    )


def test_what_cannot_be_decided_is_skipped_with_the_reason(pytester):
    """Prompt lookup declares no draft law: that check is skipped, and says why."""
    result = suite(pytester, select=["draft.declared-law-sampled"], proposer="n-gram", args=("-rs",))

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*unsupported*DRAFT_PROBS*"])


def test_a_required_check_must_be_decided(pytester):
    """A profile turns an unsupported check into a failure."""
    result = suite(pytester, select=["draft.declared-law-sampled"], proposer="n-gram", profile="traced-engine-1")

    result.assert_outcomes(failed=1)


def test_a_known_failure_that_passes_is_an_error(pytester):
    """Known failures are strict."""
    check = "tokens.prefix-termination"
    result = suite(pytester, select=[check], known={check: "issue 412"})

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*listed as a known failure (issue 412), but it passes now*"])


def test_a_known_failure_that_names_no_check_stops_the_collection(pytester):
    """A slip in the list is found before anything runs."""
    result = suite(pytester, select=["tokens.*"], known={"kv.no-such": "issue 1"})

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no check is called 'kv.no-such'*"])


def test_the_shipped_properties_judge_an_engine(pytester):
    """pytest --pyargs specverify.properties --engine MODULE:FACTORY runs every selected check."""
    result = pytester.runpytest_inprocess(
        "-p", "no:cacheprovider", "--pyargs", "specverify.properties",
        "--engine", "specverify.adapters.reference:reference_engine", "--specverify-select", "tokens.*",
    )  # fmt: skip

    result.assert_outcomes(passed=4, skipped=2)


def test_without_an_engine_the_properties_are_skipped(pytester):
    """The suite says what to give it."""
    result = pytester.runpytest_inprocess("--pyargs", "specverify.properties", "-rs")

    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*give --engine MODULE:FACTORY*"])


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("--engine", "no_such_module:make"), "cannot import no_such_module"),
        (("--engine", "specverify.adapters.reference:nothing"), "has no nothing"),
        (("--engine", "reference", "--specverify-select", "kv.no-such"), "no check is called"),
    ],
)
def test_wrong_options_end_in_one_sentence(pytester, args, sentence):
    """A wrong engine or check id is a usage error, not a traceback."""
    result = pytester.runpytest_inprocess("--pyargs", "specverify.properties", *args)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert sentence in result.stderr.str() + result.stdout.str()
    assert "Traceback" not in result.stderr.str()
