"""Decides what to try next, runs and judges it, and sums the outcomes."""
