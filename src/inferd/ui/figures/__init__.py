"""What the dashboard shows: sampled in each process, kept for a while, and added up."""
