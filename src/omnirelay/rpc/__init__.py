"""Call machinery: procedures, middleware, dispatcher. Knows no wire and no lease.

Never: read a header by a transport's name for it, or answer in a transport's own status.
"""
