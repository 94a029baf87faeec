"""The REST gateway: Litestar over a `Scheduler`, served by uvicorn on loopback."""
