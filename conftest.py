"""Nearly empty on purpose: nothing that a third party needs lives here."""
