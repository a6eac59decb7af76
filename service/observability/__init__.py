"""Metrics, traces and the log's format."""
