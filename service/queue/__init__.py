"""One queue for all work: what it costs, whose turn it is, and who waits for it."""
