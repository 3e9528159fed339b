"""What a restart does: incomplete turns are rolled back, interrupted runs are recorded once."""
