"""Experiments that answered one question each; run from a checkout as `python -m studies.NAME`, never installed."""
