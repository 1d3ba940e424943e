"""The use cases: a shard that serves lease calls from one journal.

Never: name a store or a transport here; they come in by constructor.
"""
