"""Every check, on the engine that --engine names. What it cannot show is skipped with the reason."""


def test_claim_holds(specverify_check):
    """The engine keeps the claim of this check; `specverify explain ID` says what that is."""
    subject, check = specverify_check
    check(subject)
