"""HTTP calls: to where they may go, signed, sent once."""

from gnomon.executors.http.config import HttpConfig
from gnomon.executors.http.executor import ANSWER_BYTES_MAX, HttpExecutor, retry_after
from gnomon.executors.http.request import HeaderSecret
from gnomon.executors.http.targets import HttpTarget

__all__ = [
    "ANSWER_BYTES_MAX",
    "HeaderSecret",
    "HttpConfig",
    "HttpExecutor",
    "HttpTarget",
    "retry_after",
]
