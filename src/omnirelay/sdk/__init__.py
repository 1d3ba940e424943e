"""What users import: one API, whether the queue is embedded or far away, async or not."""
