"""`ottla.Admin`: topics, settings, groups and offsets of a cluster."""
