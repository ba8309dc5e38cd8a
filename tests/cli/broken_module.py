"""A module that raises while it is imported."""

1 / 0  # noqa: B018
