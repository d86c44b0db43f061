"""The measures of a broker, and their receivers (`metrics.listener`, `metric.reporters`)."""
