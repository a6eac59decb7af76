"""Probe recordings in, acoustic paths and a verdict out."""
