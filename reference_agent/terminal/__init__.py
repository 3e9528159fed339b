"""The agent's command line: chat, serve, sessions, and the settings they share."""
