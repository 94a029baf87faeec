"""The client of the REST API: the scheduler's verbs, from anywhere."""

from gnomon.client.blocking_client import BlockingClient
from gnomon.client.client import Client

__all__ = ["BlockingClient", "Client"]
