"""Ids for producers that write without duplicates."""
