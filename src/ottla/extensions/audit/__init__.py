"""The audit topic (`ottla.audit.topic`): requests to change the cluster, and refused ones."""
