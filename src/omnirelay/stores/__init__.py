"""One file per product behind the journal's ports. Never: decide, number or interpret a record."""
