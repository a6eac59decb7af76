"""Benchmarks of training and serving: times beside the noise reduction that they buy.

`python -m benchmarks core | http | start | train | trace | walk` print a table and write one JSON file;
`python -m benchmarks.reliability.NAME` stresses a service. The product imports nothing from this package.
docs/performance.md states the comparisons and their reasons.
"""
