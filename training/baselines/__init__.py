"""Methods to compare a trained generator with; all have `design(paths) -> ControlFilter`."""
