"""HTTP calls: to where they may go, signed, sent once.

The settings read this package, so it loads no HTTP library: `executor` does.
"""

from gnomon.executors.http.config import HttpConfig
from gnomon.executors.http.request import HeaderSecret
from gnomon.executors.http.targets import HttpTarget

__all__ = ["HeaderSecret", "HttpConfig", "HttpTarget"]
