"""Who else serves, and who of them should."""
