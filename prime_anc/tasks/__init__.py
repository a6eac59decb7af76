"""Tasks: from a validated request and a model to its answer. The library and the service's handlers call these."""
