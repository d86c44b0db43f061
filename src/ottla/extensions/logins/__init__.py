"""Logins (SASL): who a client of a listener is, and the users that have SCRAM credentials."""
