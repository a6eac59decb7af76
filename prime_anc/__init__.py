"""Filters for active noise control from measured acoustic paths."""
