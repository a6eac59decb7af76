"""Who may ask, how often, and what can still be answered in time."""
