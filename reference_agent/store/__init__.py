"""Where a session lives between two lives of the process."""

from reference_agent.store.sqlite import SessionStore

__all__ = ["SessionStore"]
