"""Settings: one table per subject, each giving a typed, frozen object and a page of documentation.

The tables are the source of `docs/operate/configuration` (`python -m ottla.config` writes it).
"""
