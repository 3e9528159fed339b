"""Code that runs inside the target's process: standard library only, and as little of it as possible.

These modules import nothing from the engine. The two sides share one protocol (see `life`): JSON
lines over an inherited socket.
"""

from chaoskit.inside.life import Life

__all__ = ["Life"]
