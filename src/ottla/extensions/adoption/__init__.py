"""Adoption (`ottla.adopt.log.dirs`): partitions of another broker are taken over."""
