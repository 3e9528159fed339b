"""The command line: options become calls, errors become one line and an exit code."""
