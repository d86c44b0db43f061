"""The registry: the cluster's facts as a tree of small nodes, at Kafka's ZooKeeper paths."""
