"""Copies topics from cluster to cluster: mirrors of 0.7's design, and MirrorMaker 2's flows."""
