"""How many calls leave a span. Read by the tracing middleware at every call, changed by an
operator while the node runs."""

import msgspec
from opentelemetry.trace import SpanContext

from omnirelay.model.errors import InvalidArgument


class SamplingState(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    sampling_probability: float


class Sampling:
    def __init__(self, probability: float = 1.0) -> None:
        self.probability = _checked(probability)

    def change(self, probability: float) -> None:
        """Raises InvalidArgument outside 0 to 1."""
        self.probability = _checked(probability)

    def takes(self, parent: SpanContext, draw: float) -> bool:
        """Whoever began a trace has decided for all of it; otherwise `draw`, from 0 up to 1, is
        compared."""
        if parent.is_valid:
            return parent.trace_flags.sampled
        return draw < self.probability


def _checked(probability: float) -> float:
    if not 0.0 <= probability <= 1.0:  # false for a NaN too
        raise InvalidArgument(f"samplingProbability is {probability}, must be from 0 to 1")
    return probability
