"""Visits of profiles, counted where a member has a partition (semantic partitioning)."""
