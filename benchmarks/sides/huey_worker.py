"""A huey consumer on SQLite, by its public API: threads, `synchronous=FULL`, quick polling."""

from __future__ import annotations

from benchmarks.sides.huey_app import make_huey
from benchmarks.sides.worker import Tally, options


def work(path: str, *, threads: int) -> None:
    tally = Tally()

    def perform(due: float | None) -> None:
        if due is None:
            tally.add()
        else:
            tally.add_due(due)

    app, _ = make_huey(path, perform)
    consumer = app.create_consumer(
        workers=threads,
        worker_type="thread",
        periodic=False,
        initial_delay=0.01,
        max_delay=0.05,
        scheduler_interval=1,
        check_worker_health=False,
    )
    tally.wait_go()
    consumer.start()
    tally.wait_stop()
    consumer.stop(graceful=True)
    tally.bye()


if __name__ == "__main__":
    given = options()
    work(given["path"], threads=given["threads"])
