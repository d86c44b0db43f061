"""Compaction: of the records with the same key, only the last one stays (KIP-58, KIP-534)."""
