"""The REST gateway: one table of routes over a `Scheduler`, on Starlette, served by uvicorn."""
