"""The controller: which topics there are, their leaders, and the orders to brokers."""
