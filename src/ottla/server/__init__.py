"""The broker: handlers for each API, the metadata that they answer from, and the assembly."""
