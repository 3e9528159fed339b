"""Decides what to try next, has it run and judged, and adds up the outcomes."""
