"""inferd: an inference server that speaks the standard protocols exactly."""

__all__ = ["Model", "Server", "Spec", "__version__", "model"]

__version__ = "0.1.0"

_PLACES = {
    "Model": ("inferd.backends.function.model", "Model"),
    "Server": ("inferd.server.thread", "ServerThread"),
    "Spec": ("inferd.backends.function.annotation", "Spec"),
    "model": ("inferd.backends.function.model", "model"),
}
"""Where the public names are defined; imported on first use. Type checkers read the .pyi."""


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'inferd' has no attribute '{name}'")
    from importlib import import_module

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
