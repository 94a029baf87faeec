"""The first action: declare a function, schedule it, be a worker, look at the result."""

import asyncio
import sys

import gnomon

app = gnomon.App(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///hello.db")


@app.action
async def greet(ctx: gnomon.Attempt, name: str) -> str:
    return f"hello {name}, this is attempt {ctx.attempt_no}"


async def main() -> None:
    async with app:
        scheduled = await app.schedule(greet("ann"))
        stop = asyncio.Event()
        worker = asyncio.create_task(app.work(stop))
        while True:
            action = await app.scheduler.get(scheduled.meta.id)
            if action.status.state is gnomon.State.DONE:
                break
            await asyncio.sleep(0.02)
        stop.set()
        await worker
        assert action.status.last_attempt is not None
        print(action.status.last_attempt.answer)


asyncio.run(main())
