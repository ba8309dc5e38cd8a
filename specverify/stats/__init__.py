"""Evidence: budgets, e-processes, streams, pair betting, certified distances, chi-square."""
