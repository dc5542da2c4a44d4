"""Processes that work for this one: they leave Ctrl-C to it, and none outlives it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Have the processes that are started in the block never see Ctrl-C.

    A terminal sends it to all of them at once, also while they still import. Here it waits until
    the end of the block.
    """
    resource_tracker.ensure_running()  # its start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent(folder: str = "") -> None:
    """End this process when the one that started it is gone, however that ended.

    A folder that the parent would have removed is removed first.
    """
    parent = parent_process()
    assert parent is not None, "this process was not started by multiprocessing"
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        if folder:
            shutil.rmtree(folder, ignore_errors=True)  # another worker may be faster
        os._exit(1)  # whatever the other threads do: nobody wants it any more

    threading.Thread(target=watch, name="watches the parent", daemon=True).start()
