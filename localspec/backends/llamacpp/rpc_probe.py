"""Run as a file: does an RPC server answer? ``rpc_probe.py LIBRARY HOST:PORT`` prints the number of its devices.

Not imported by anything, so that it starts in no time: ggml ends the process that meets a server which is not there,
speaks another version or is no RPC server at all, and it waits for ever for one that is busy with another client.
"""

from __future__ import annotations

import ctypes
import sys


def main(library: str, server: str) -> None:
    ggml = ctypes.CDLL(library)
    add, count = ggml.ggml_backend_rpc_add_server, ggml.ggml_backend_reg_dev_count
    add.restype = ctypes.c_void_p
    count.argtypes, count.restype = [ctypes.c_void_p], ctypes.c_size_t
    registry = add(server.encode())
    print(count(registry) if registry else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
