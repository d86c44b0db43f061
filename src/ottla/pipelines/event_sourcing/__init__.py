"""Accounts whose state is the sum of their events, now and at any moment before."""
