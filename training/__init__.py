"""Training and judging of generators: data, splits, simulated measurements, published checkpoints, tables.

`run_splits` is a run from top to bottom: read listeners' paths and noises (`datasets`), split by listener, simulate
their calibrations (`simulated_calibration`), run the tasks (`experiment`). A generator's task (`run_task`) builds a
training set with mixtures of support listeners, trains, evaluates on the held-out listeners and publishes; every other
method's task evaluates it on the same listeners. `report` makes tables and figures of the rows.
"""
