"""From probe recordings to acoustic paths and a verdict."""
