"""Clients and their rights: principals, SASL mechanisms, access control lists."""
