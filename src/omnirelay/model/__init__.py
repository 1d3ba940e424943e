"""Words every other room uses: items, errors, limits, ports. Imports nothing of ours."""
