"""Replicas that move from one log directory of their broker to another while they are used."""
