"""Rights (`authorizer.class.name`): what a client may do, by the ACLs in the registry."""
