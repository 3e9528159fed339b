"""What the agent persists: the store of a session, its event log, and the order in which both are written."""
