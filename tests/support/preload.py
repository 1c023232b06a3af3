"""Import the modules and load the data that every build needs, once for all processes that are forked for tests."""

import rensa  # noqa: F401

from gristmill import load_tokenizer
from gristmill.cleaning.secrets import find_secrets
from gristmill.pipeline.keys import code_digest, versions
from gristmill.tokenizers import huggingface  # noqa: F401

load_tokenizer()
find_secrets(b"", emails=True)
code_digest()
versions()
