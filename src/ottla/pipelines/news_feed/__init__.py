"""Activities of people, fanned out to the feeds of those who follow them."""
