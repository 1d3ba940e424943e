"""The ordered, durable truth: envelopes, group commit, followers, snapshots.

Never: name a product here (that is `stores`), decide anything about leases (that is `lease`).
"""
