"""A huey consumer on SQLite, by its public API: threads, `synchronous=FULL`, quick polling."""

from __future__ import annotations

from huey import SqliteHuey

from benchmarks.sides.worker import Tally, options


def make_huey(path: str) -> SqliteHuey:
    """`fsync` is what makes a commit survive the machine; without results there is less to write,
    and a function that returns None has none anyway."""
    return SqliteHuey("bench", filename=path, fsync=True, results=False, cache_mb=64)


def work(path: str, *, threads: int, timed: bool) -> None:
    tally = Tally()
    rival = make_huey(path)

    @rival.task(name="noop")  # type: ignore[untyped-decorator]
    def noop(due: float | None = None) -> None:
        if timed and due is not None:
            tally.add_due(due)
        else:
            tally.add()

    consumer = rival.create_consumer(
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
    work(given["path"], threads=given["threads"], timed=given["timed"])
