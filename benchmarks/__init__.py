"""What training and serving cost, with the noise reduction that each time buys.

`python -m benchmarks core | http | start | train | scaling | trace` each print a table and write one JSON file;
`python -m benchmarks.reliability.NAME` puts a service under stress. Nothing in the product imports this package.
docs/performance.md says what is compared with what, and why.
"""
