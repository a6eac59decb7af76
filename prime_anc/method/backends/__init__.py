"""Processors that draft and predict filters.

`reference` is the method in torch, which training differentiates and tests run in float64; `cpu` is compiled and
releases Python's lock; `cuda` replays recorded graphs. torch is imported only with a backend that needs it.
"""
