"""Words the whole suite shares: requests, steps, capabilities, outcomes and named random streams."""
