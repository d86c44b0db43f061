"""Replication: which log belongs to which partition, who leads it, and what waits for it."""
