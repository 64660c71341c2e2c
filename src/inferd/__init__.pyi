from inferd.backends.function.annotation import Spec as Spec
from inferd.backends.function.model import Model as Model
from inferd.backends.function.model import model as model
from inferd.server.thread import ServerThread as Server

__all__ = ["Model", "Server", "Spec", "__version__", "model"]

__version__: str
