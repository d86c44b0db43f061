"""Metrics of hosts: aggregated in minutes, and watched, with an alert for each incident."""
