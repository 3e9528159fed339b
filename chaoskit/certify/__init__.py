"""Certification of third-party checkpointers and agents: from an adapter to a certificate."""
