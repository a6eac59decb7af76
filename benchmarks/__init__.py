"""Benchmarks of training and serving: times beside the noise reduction that they buy.

`python -m benchmarks core | load | start | train` print a table and write one JSON file. The product imports
nothing from this package.
docs/performance.md states the comparisons and their reasons.
"""
