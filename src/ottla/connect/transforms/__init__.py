"""The transforms that come with Kafka, by what they change."""
