"""The queue as a pure function of its records: no I/O, no clock, no chance.

`decide` says which records a command leads to, `evolve` applies them, `answer` says what the
caller is told. Never: import a clock, a loop, a log or a driver here.
"""
