"""The words of a text, counted as it comes in."""
