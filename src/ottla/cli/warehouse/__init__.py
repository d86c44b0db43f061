"""`ottla warehouse`: tables filled from topics, and what is done with them."""
