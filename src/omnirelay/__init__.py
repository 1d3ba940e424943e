"""OmniRelay: a lease-aware RPC mesh for data platforms."""

__all__: list[str] = []
