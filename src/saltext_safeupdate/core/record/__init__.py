"""The durable account of updates: the database, its tables, and the phases."""
