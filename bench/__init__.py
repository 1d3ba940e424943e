"""Measurements, never tests: ours beside the limit of the machine and the peers, in one run."""
