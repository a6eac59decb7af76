"""Acoustic paths and noises for training and scoring, measured or simulated."""
