"""Articles that are cleaned, and recommended to readers: three stages, a topic between each."""
