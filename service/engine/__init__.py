"""Design of filters: job queue, worker threads, and resident models."""
