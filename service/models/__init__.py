"""Models in memory."""
