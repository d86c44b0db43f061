"""Delegation tokens (`delegation.token.secret.key`): passwords for a while (KIP-48)."""
