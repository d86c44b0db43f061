"""The coordinator of transactions: who may write under an id, and how all counts or nothing."""
