"""What the live comparisons share: skipping without the Python packages, the folder of a case, reported figures.

usage of each: SCRIPT LORIKEET LORA_FINETUNE_SINGLE_DEVICE [unittest's arguments]
"""

import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import warnings



def skip(error):
    """Ends a test that lacks what it compares with."""
    print(f"skipped: {error}")
    sys.exit(77)


os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import peft  # noqa: F401
    import torch
    import transformers
except ImportError as missing:
    skip(missing)

from programs import Programs

torch.set_num_threads(2)
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
warnings.filterwarnings("ignore", category=FutureWarning)


class LiveTest(unittest.TestCase):
    programs = None

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lorikeet-parity-"))
        self.addCleanup(shutil.rmtree, self.root)

    def below(self, value, limit, what):
        print(f"{what}: {value:.2e} (below {limit:.0e})", flush=True)
        self.assertLess(value, limit, what)

    def beyond(self, value, limit, what):
        """The proof that a comparison bites: a wrong reference must fall far outside the tolerance."""
        print(f"{what}: {value:.2e} (beyond {limit:.0e})", flush=True)
        self.assertGreater(value, limit, what)


def main():
    LiveTest.programs = Programs(*sys.argv[1:3])
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
