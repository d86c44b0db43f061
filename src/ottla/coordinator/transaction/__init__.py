"""The coordinator of transactions: which producer may write, and how all counts or nothing."""
