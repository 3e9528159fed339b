"""Makes things happen: processes are started, watched, killed and restarted here, and nowhere else."""
