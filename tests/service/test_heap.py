"""All threads of the service allocate from one heap (`share_one_heap`)."""

import platform
import subprocess
import sys

import pytest

COUNT_HEAPS = """
import ctypes, sys, threading
from service.heap import share_one_heap
if "shared" in sys.argv:
    share_one_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fdopen.restype, libc.fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
libc.malloc_info.argtypes, libc.fflush.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
all_here = threading.Barrier(3)
def work():
    libc.malloc(60_000)
    all_here.wait()
for _ in range(2):
    threading.Thread(target=work).start()
all_here.wait()
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps of a thread are glibc's")
@pytest.mark.parametrize(("word", "one"), [("shared", True), ("", False)])
def test_threads_share_one_heap(word: str, one: bool) -> None:
    said = subprocess.run([sys.executable, "-c", COUNT_HEAPS, word], capture_output=True, text=True, check=True)
    n_heaps = said.stdout.count("<heap nr=")
    assert (n_heaps == 1) == one, f"{n_heaps} heaps"
