"""Methods to compare a trained generator with: each has `design(paths) -> ControlFilter`."""
