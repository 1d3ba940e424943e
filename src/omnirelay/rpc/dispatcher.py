"""From a request to its reply: find the procedure, run the chain."""

from collections.abc import Sequence

from omnirelay.rpc.meta import Reply, Request
from omnirelay.rpc.middleware import Middleware, chain
from omnirelay.rpc.procedure import Handler, Procedure, Registry


class Dispatcher:
    """One for all transports of a node, so that the same call meets the same chain everywhere. It
    is a `Handler`: an inbound calls it, and so may an outbound inside one process."""

    def __init__(self, registry: Registry, middleware: Sequence[Middleware] = ()) -> None:
        self.registry = registry
        self._middleware = tuple(middleware)
        self._chains: dict[str, Handler] = {}

    async def __call__(self, request: Request) -> Reply:
        """Raises OmniRelayError; a transport turns it into its own status by `rpc.status`."""
        procedure = self.registry.find(request.meta.procedure)
        return await self._chain_of(procedure)(request)

    def _chain_of(self, procedure: Procedure) -> Handler:
        # Composed once a procedure: a call pays for the middleware, not for putting it together.
        built = self._chains.get(procedure.name)
        if built is None:
            built = self._chains[procedure.name] = chain(self._middleware, procedure)
        return built
