"""Lakehouse tables, proofs, lineage and replays out of the journals, on Spark.

Never: write to a journal, decide about a lease, ask a user for Java, import pyspark from outside
this room (the command line does it inside its functions: it must start fast without the extra).
"""
