"""The log room: partitions as files, in Kafka's own formats and under Kafka's names."""
