"""Execution: the only package that starts, watches, kills and restarts processes."""
