"""`ottla transactions`: what kafka-transactions.sh does."""
