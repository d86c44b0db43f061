"""One site whose activity many programs read at once: the founding use of a log."""
