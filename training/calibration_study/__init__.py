"""What the figures owe to the calibration: `python -m training.calibration_study`, see `__main__`."""
