"""Stress on a real service in a separate process: one command per line of the reliability table.

    python -m benchmarks.reliability.soak --requests 1000000 --out soak.json --deadline-ms 5000

Unknown options are passed to the service.
"""
