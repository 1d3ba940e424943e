"""A pipeline in a process of its own, to be killed from outside or wherever OMNIRELAY_FAILPOINTS
says.

    python -m tests.spark.crash_workload JOURNAL TARGET

follows the journal to its end in micro-batches and prints `done`. With a third word, the master to
work on, it goes on until it is killed, and prints how many events each micro-batch brought.
"""

import os
import sys

from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Hold
from omnirelay.pipeline.run import open_pipeline
from omnirelay.pipeline.session import SessionOptions, open_session
from omnirelay.pipeline.stream import CHECKPOINT, Stream, StreamOptions
from omnirelay.testing.failpoints import arm_from_env
from tests.spark.small_tables import COUNTS, LIVES


def main(journal: str, target: str, master: str | None = None) -> None:
    arm_from_env(os.environ)
    with Hold(target) as hold:
        session = open_session(SessionOptions(master=master or "local[2]", memory="1g", size="few"))
        pipeline = open_pipeline(
            session,
            {"url": f"sqlite:///{journal}", "rows_per_batch": "12"},
            DeltaTables(session, target),
            hold=hold,
            datasets=(LIVES, COUNTS),
            consumer="pipeline",
        )
        options = StreamOptions(f"{target}/{CHECKPOINT}", is_once=master is None, interval_s=0.1)
        Stream(pipeline, options, lambda made: print(made.events, flush=True)).run()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
