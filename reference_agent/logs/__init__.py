"""Structured logs for operators, with secrets removed. Not to be confused with the event log of a session."""
