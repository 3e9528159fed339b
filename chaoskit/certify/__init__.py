"""Other people's checkpointers: from an adapter to a certificate."""
