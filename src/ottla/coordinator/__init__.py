"""Coordinators: brokers' state machines that clients agree through, groups and producer ids."""
