"""Names that a test process imports when it first uses them.

Every process collects every test, and a build forks its workers from the process that runs the test. With PyTorch and
transformers imported at collection, each fork took 45 ms instead of 21.
"""

import importlib
from typing import Any


class Late:
    """A module or one of its names, imported when it is first called or an attribute of it is read."""

    def __init__(self, module: str, name: str | None = None) -> None:
        self.__dict__.update(_module=module, _name=name)

    def _imported(self) -> Any:
        module = importlib.import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._imported()(*args, **kwargs)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") or attribute == "_mock_name":  # pytest reads these while it collects
            raise AttributeError(attribute)
        return getattr(self._imported(), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise TypeError(
            f"cannot set {attribute} of {self._module}. Use its path: monkeypatch.setattr('module.name', …)"
        )


def late(module: str, *names: str) -> list[Late]:
    return [Late(module, name) for name in names]
