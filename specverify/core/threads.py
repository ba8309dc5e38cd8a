"""Worker processes share the cores: none of them may take all of them for its products."""

from __future__ import annotations

import os
import sys


def share_cores(num_processes: int) -> None:
    """Leaves this process its share of the cores for what numpy and torch compute, from now on: at a worker's start.

    Waiting threads of one worker spin on the core that another one computes on; tiny products then take ten times as
    long.
    """
    from threadpoolctl import threadpool_limits

    share = max(1, (os.cpu_count() or 1) // num_processes)
    threadpool_limits(share, user_api="blas")
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(share)
