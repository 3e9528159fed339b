"""The agent as a service: a coordinator of runs, and the HTTP API in front of it."""
