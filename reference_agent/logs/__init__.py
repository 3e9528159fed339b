"""Structured logs for operators, with secrets removed. Not to be confused with a session's event log."""
