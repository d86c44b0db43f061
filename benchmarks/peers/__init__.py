"""Benchmarks beside peers that other package managers fetch: `make peers` runs them.

The tests of tests/peers use the same peers, by the modules here that are no benchmarks.
"""
