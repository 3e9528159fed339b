"""The command line: maps options to calls, and errors to one line and an exit code."""
