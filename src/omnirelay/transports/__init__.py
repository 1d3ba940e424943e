"""Wires: how a call comes in and goes out. Never: know a lease, a policy or a store."""
