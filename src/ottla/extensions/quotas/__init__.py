"""Client quotas (`quota.window.num`): how much clients may use, and how long they wait then."""
