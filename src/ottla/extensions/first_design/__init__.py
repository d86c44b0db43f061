"""Topics, requests and nodes of Kafka 0.7 beside those of today (`first.design.listener`)."""
