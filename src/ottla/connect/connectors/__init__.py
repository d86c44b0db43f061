"""The connectors that come with Ottla, a module for each system."""
