"""A load program for a real service in a separate process.

    python -m benchmarks.reliability.overload --seconds 600 --out overload.json

Unknown options are passed to the service.
"""
