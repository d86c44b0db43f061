"""The version of Ottla, in one place: the package metadata and `ottla --version` read it here."""

__version__ = "0.2.0"
