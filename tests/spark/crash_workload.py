"""A pipeline in a process of its own, to be killed wherever OMNIRELAY_FAILPOINTS says.

    python -m tests.spark.crash_workload JOURNAL TARGET

follows the journal to its end in micro-batches and prints `done`.
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


def main(journal: str, target: str) -> None:
    arm_from_env(os.environ)
    with Hold(target) as hold:
        session = open_session(
            SessionOptions(
                master="local[2]", memory="1g", config={"spark.sql.shuffle.partitions": "1"}
            )
        )
        pipeline = open_pipeline(
            session,
            {"url": f"sqlite:///{journal}", "rows_per_batch": "12"},
            DeltaTables(session, target),
            hold=hold,
            datasets=(LIVES, COUNTS),
            consumer="pipeline",
        )
        options = StreamOptions(f"{target}/{CHECKPOINT}", is_once=True)
        Stream(pipeline, options, lambda _: None).run()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
