"""One HTML page to play with the economics of speculation and to step through rounds, simulated or recorded."""
