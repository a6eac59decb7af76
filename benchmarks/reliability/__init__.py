"""Stress on a real service in a process of its own: one command for each line of the reliability table.

    python -m benchmarks.reliability.soak --requests 1000000 --out soak.json --deadline-ms 5000

Options that a command does not know are passed on to the service.
"""
