"""What one controller for everybody loses against a design for each listener."""
