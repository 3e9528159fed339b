"""Recovery on restart: incomplete turns are rolled back, interrupted runs are recorded once."""
