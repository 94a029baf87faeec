"""The gRPC API, version 1: messages and stubs as `make proto` writes them from proto/gnomon/v1.

Services that implement `ActionHandler`, and clients in Python, import them from here. The package
is named as the protocol is, so that the generated modules find each other as they stand.
"""
