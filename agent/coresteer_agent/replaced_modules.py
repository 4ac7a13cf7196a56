"""Imports of packages without modules that are needed only by those of their functions that the agent does not call."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def replaced_modules(replacements: Mapping[str, Mapping[str, object]]) -> Iterator[None]:
    """Let imports in this context get modules that only have these attributes, by name; others load the real module.

    No effect on modules that are loaded already.
    """
    replaced = {name: _replacement(name, replacements[name]) for name in replacements if name not in sys.modules}
    sys.modules.update(replaced)
    try:
        yield
    finally:
        for name, module in replaced.items():
            _remove(name, module)


def _replacement(name: str, attributes: Mapping[str, object]) -> ModuleType:
    module = ModuleType(name)

    def load(attribute: str) -> object:
        if attribute.startswith("__"):  # what an import statement asks for
            raise AttributeError(attribute)
        _remove(name, module)
        return getattr(import_module(name), attribute)

    module.__dict__.update(attributes, __getattr__=load)
    return module


def _remove(name: str, module: ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
