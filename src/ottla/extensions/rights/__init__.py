"""Rights (`authorizer.class.name`): the acts a client may do, by the ACLs in the registry."""
