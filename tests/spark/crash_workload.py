"""A pipeline in a process of its own, to be killed from outside.

    python -m tests.spark.crash_workload JOURNAL TARGET MASTER

follows the journal in micro-batches until it is killed, and prints how many events each of them
brought.
"""

import sys

from omnirelay.pipeline.delta import DeltaTables
from omnirelay.pipeline.hold import Hold
from omnirelay.pipeline.run import open_pipeline
from omnirelay.pipeline.session import SessionOptions, open_session
from omnirelay.pipeline.stream import CHECKPOINT, Stream, StreamOptions
from tests.spark.small_tables import COUNTS, LIVES


def main(journal: str, target: str, master: str) -> None:
    with Hold(target) as hold:
        # Two tasks a shuffle: with one, the driver would write all files, and not the executor.
        tasks = {"spark.sql.shuffle.partitions": "2"}
        options = SessionOptions(master=master, memory="1g", size="few", config=tasks)
        session = open_session(options)
        pipeline = open_pipeline(
            session,
            {"url": f"sqlite:///{journal}", "rows_per_batch": "12"},
            DeltaTables(session, target),
            hold=hold,
            datasets=(LIVES, COUNTS),
            consumer="pipeline",
        )
        often = StreamOptions(f"{target}/{CHECKPOINT}", interval_s=0.1)
        Stream(pipeline, often, lambda made: print(made.events, flush=True)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
