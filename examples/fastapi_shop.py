"""A small shop on FastAPI that is its own worker: `uvicorn examples.fastapi_shop:web`."""

import os

import fastapi

import gnomon

app = gnomon.App(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
web = fastapi.FastAPI(lifespan=app.lifespan(worker=True))


@app.action(retry=5)
async def remind(ctx: gnomon.Attempt, user: str) -> str:
    return f"remember, {user}"


@web.post("/orders/{user}")
async def buy(user: str, delay: str = "3h") -> dict[str, str]:
    action = await app.schedule(remind(user), in_=delay)
    return {"reminder": action.meta.id}


@web.get("/reminders/{id}")
async def reminder(id: str) -> dict[str, str]:
    return {"text": await app.result(id, timeout="1m")}
