"""Exceptions of gristmill, each with the exit code of the command that fails.

    GristmillError               70  base class; raised directly, it reports a bug in gristmill
    ├── ConfigError               2  a setting or an option is invalid
    │   ├── DeviceError           2  the requested accelerator is not available
    │   └── MissingExtraError     2  an optional dependency is not installed
    ├── InputError                3  a source or a tokenizer cannot be read
    │   ├── NothingToBuildError   3  no file is left to build from
    │   └── TokenizerError        3  a tokenizer cannot be used
    │       ├── HubError          3  a tokenizer is not on this machine and the Hub cannot be reached
    │       └── NotOnGpuError     3  the GPU cannot encode exactly with this tokenizer
    ├── OutputError               3  a location cannot be written to
    ├── DatasetError              4  a folder is not a dataset, or is damaged
    └── TrainingError             5  training cannot continue

A message states in one line what is wrong, where, what was found, and what to do.
"""


class GristmillError(Exception):
    """Base class of all errors that gristmill raises on purpose.

    The message is one line: what is wrong, where, what was found, and what to do. `exit_code` is the exit code of a
    command that fails with the error. A GristmillError that is raised directly reports a bug in gristmill.
    """

    exit_code = 70


class ConfigError(GristmillError):
    """A setting or an option is invalid, or two of them contradict each other."""

    exit_code = 2


class DeviceError(ConfigError):
    """The requested accelerator, such as a CUDA GPU, is not available."""


class MissingExtraError(ConfigError):
    """An optional dependency is not installed. The message contains the install command."""


class InputError(GristmillError):
    """A source, a tokenizer or another input cannot be read or used."""

    exit_code = 3


class NothingToBuildError(InputError):
    """No file is left to build from: the sources have no files, or all files were dropped."""


class TokenizerError(InputError):
    """A tokenizer cannot be loaded, or cannot be used with the given settings."""


class HubError(TokenizerError):
    """A tokenizer is not on this machine, and the Hugging Face Hub cannot be reached."""


class NotOnGpuError(TokenizerError):
    """The GPU cannot encode exactly with this tokenizer. Load the tokenizer with `device="cpu"`."""


class OutputError(GristmillError):
    """An output folder or file cannot be written."""

    exit_code = 3


class DatasetError(GristmillError):
    """A folder is not a dataset, or the dataset is damaged or was replaced while it was being read."""

    exit_code = 4


class TrainingError(GristmillError):
    """A training run cannot continue, for example because the loss is NaN."""

    exit_code = 5
