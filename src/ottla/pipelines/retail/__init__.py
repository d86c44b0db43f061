"""Sales and shipments of a shop, and what follows from them: reorders and prices."""
