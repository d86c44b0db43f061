"""Coordinators: a broker's state machines for groups and for transactions."""
