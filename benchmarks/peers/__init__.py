"""Benchmarks beside peers that other package managers fetch: `make peers` runs them."""
