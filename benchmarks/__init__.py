"""Benchmarks: each runs Ottla and a peer, or the machine's own limit, in the same run."""
