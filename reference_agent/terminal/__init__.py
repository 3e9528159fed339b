"""The command line of the agent: chat, serve, sessions, and the settings they share."""
