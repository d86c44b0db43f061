"""What is measured of a broker, and who gets it (`metrics.listener`, `metric.reporters`)."""
