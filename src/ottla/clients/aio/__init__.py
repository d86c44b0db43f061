"""The clients of `ottla.aio`: those of `ottla`, on the event loop of the program that uses them."""
