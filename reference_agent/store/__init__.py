"""What the agent persists: a session's store, its event log, and the order in which both are written."""
