"""The composition root: the only room that names concrete adapters.

Never: decide anything about a lease or a call; it only introduces the rooms to one another.
"""
