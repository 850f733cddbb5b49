"""For tests of children of fork; loader_stress.py, which is no test, has it too."""

import os
import warnings


def fork() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of fork with threads about: that it works is what is tested.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
