"""The audit topic (`ottla.audit.topic`): who asked to change the cluster, and what was refused."""
