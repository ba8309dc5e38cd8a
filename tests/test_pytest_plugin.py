"""The plugin in other people's suites: outcomes become pass, skip, fail and strict xfail, under xdist too."""

from __future__ import annotations

import pytest

from specverify import catalogue
from specverify.adapters.reference import reference_engine

# pytester takes modules away that a run in this process imported, and torch does not survive a second import.
catalogue.all_checks()
reference_engine()

SUITE = """
from specverify import parametrize_with_checks
from specverify.reference.subject import reference_subject

def make_engine():
    return reference_subject(proposer={proposer!r})

@parametrize_with_checks({{"mine": make_engine}}, select={select!r}, known_failures={known!r}, profile={profile!r})
def test_speculation(subject, check):
    check(subject)
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

    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*passed  tokens.prefix-termination  mine  *steps*"])


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

    result.assert_outcomes(passed=3, skipped=2)


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
