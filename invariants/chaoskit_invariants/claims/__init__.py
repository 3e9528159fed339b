"""Claims: what a certificate examines about a store or an agent, each declared once, in its module."""

from __future__ import annotations

from chaoskit.model import Claim
from chaoskit_invariants.claims import agents, stores

CLAIMS = tuple(
    found for module in (stores, agents) for found in vars(module).values() if isinstance(found, Claim)
)
