"""Logins (SASL): the names of clients of a listener, and the users that have SCRAM credentials."""
