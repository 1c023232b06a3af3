"""What can go wrong, and the exit code each answers with.

    GristmillError               70  a fault of ours, if it ever shows as itself
    ├── ConfigError               2  a setting or an option that cannot be
    │   ├── DeviceError           2  the accelerator that was asked for is not there
    │   └── MissingExtraError     2  an optional dependency is not installed
    ├── InputError                3  a source or tokenizer that cannot be read
    │   ├── NothingToBuildError   3  of all that was found, nothing is left
    │   └── TokenizerError        3
    │       ├── HubError          3  a tokenizer that is not here, and the Hub cannot be asked
    │       └── NotOnGpuError     3  a tokenizer that only the CPU encodes exactly
    ├── OutputError               3  a place that cannot be written
    ├── DatasetError              4  not a dataset, or a damaged one
    └── TrainingError             5  a training that cannot go on

A message says what, where, got, and what to do, in one line.
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
