"""From a request to its reply: find the procedure, run the chain."""

from collections.abc import Sequence

from omnirelay.model import limits
from omnirelay.rpc.meta import Reply, Request, RequestMeta
from omnirelay.rpc.middleware import Middleware, PromptChain, chain, prompt_chain
from omnirelay.rpc.procedure import Handler, Procedure, Registry


class Dispatcher:
    """One for all transports of a node, so that the same call meets the same chain everywhere. It
    is a `Handler`: an inbound calls it, and so may an outbound inside one process."""

    def __init__(self, registry: Registry, middleware: Sequence[Middleware] = ()) -> None:
        self.registry = registry
        self._middleware = tuple(middleware)
        self._chains: dict[str, Handler] = {}
        self._prompt: dict[str, PromptChain | None] = {}
        self._settled: dict[int, RequestMeta] = {}
        """By identity; kept here, so that no other comes to have the same."""

    async def __call__(self, request: Request) -> Reply:
        """Raises OmniRelayError; a transport turns it into its own status by `rpc.status`."""
        procedure = self.registry.find(request.meta.procedure)
        return await self._chain_of(procedure)(request)

    def prompt(self, request: Request) -> Handler | None:
        """The short way, for a call that meets no middleware which may suspend by itself: what it
        returns may be run by a `Prompt`. None: it needs a task."""
        name = request.meta.procedure
        if name not in self._prompt:
            procedure = self.registry.get(name)
            if procedure is None:
                return None  # names are remembered only if they are served
            self._prompt[name] = prompt_chain(self._middleware, procedure)
        found = self._prompt[name]
        if found is None:
            return None
        settled, others, handler = found
        meta = request.meta
        # Most calls of a connection share their meta, and so what was found out about it.
        if self._settled.get(id(meta)) is not meta:
            if not all(one.is_idle(request) for one in settled):
                return None
            if len(self._settled) >= limits.SETTLED_METAS_MAX:
                self._settled.clear()
            self._settled[id(meta)] = meta
        for one in others:
            if not one.is_idle(request):
                return None
        return handler

    def _chain_of(self, procedure: Procedure) -> Handler:
        # Composed once a procedure: a call pays for the middleware, not for putting it together.
        built = self._chains.get(procedure.name)
        if built is None:
            built = self._chains[procedure.name] = chain(self._middleware, procedure)
        return built
