"""Who asks, and what it may do: principals, SASL mechanisms, access control lists."""
