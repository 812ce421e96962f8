"""`python -m gllm_lib.cli` is `gllm`."""

import sys

from gllm_lib.cli import main

sys.exit(main())
