"""Clients that behave badly, found in the stream of requests and put on a blocklist."""
