"""Exceptions, with the exit code of each.

    GristmillError               70  base class; raised as such, it is a bug in gristmill
    ├── ConfigError               2  a setting or an option is invalid
    │   ├── DeviceError           2  the requested accelerator is not available
    │   └── MissingExtraError     2  an optional dependency is not installed
    ├── InputError                3  a source or a tokenizer cannot be read
    │   ├── NothingToBuildError   3  no file is left to build from
    │   └── TokenizerError        3  a tokenizer cannot be used
    │       ├── HubError          3  a tokenizer is not on this machine and the Hub cannot be reached
    │       └── NotOnGpuError     3  only the CPU encodes exactly with this tokenizer
    ├── OutputError               3  a location cannot be written to
    ├── DatasetError              4  a folder is not a dataset, or is damaged
    └── TrainingError             5  training cannot continue

A message states in one line what is wrong, where, what was found, and what to do.
"""


class GristmillError(Exception):
    exit_code = 70


class ConfigError(GristmillError):
    exit_code = 2


class DeviceError(ConfigError):
    pass


class MissingExtraError(ConfigError):
    pass


class InputError(GristmillError):
    exit_code = 3


class NothingToBuildError(InputError):
    pass


class TokenizerError(InputError):
    pass


class HubError(TokenizerError):
    pass


class NotOnGpuError(TokenizerError):
    pass


class OutputError(GristmillError):
    exit_code = 3


class DatasetError(GristmillError):
    exit_code = 4


class TrainingError(GristmillError):
    exit_code = 5
