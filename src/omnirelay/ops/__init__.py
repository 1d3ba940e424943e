"""Windows of a node: control plane, dashboard, metrics.

Never: change a lease; what changes something goes through the node's own verbs.
"""
