"""Who calls, proved, and what they may do.

Never: believe a header that nobody vouches for, keep or repeat a secret, decide what a verb does.
"""
