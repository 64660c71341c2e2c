"""The texts of --help, generated from the declaration of the options."""

import textwrap
from collections.abc import Iterable, Iterator

from inferd.config.options.option import Option, groups_of
from inferd.config.server import ServerConfig

_WIDTH = 96
_COLUMN = 36

MAIN = """\
inferd serves machine-learning models over HTTP and gRPC (V2 / Open Inference Protocol).

  inferd serve PATH... [options]    serve the models in one or more repositories
  inferd serve MODEL [options]      serve one model: its file, or its folder
  inferd serve app.py               serve the functions of a Python file as models
  inferd serve --help               every option of the server
  inferd infer MODEL --input X=@F   send one inference to a server, or to a model file
  inferd bench MODEL                measure a server under load
  inferd tune MODEL --goal LIMITS   find the settings with which a model serves most
  inferd models|stats [MODEL]       show the models of a server, or what it has counted
  inferd load|unload MODEL...       load models of a server, or take them out of use
  inferd check PATH...              say what is wrong with repositories or models, without a server
  inferd config MODEL               show the configuration of a model, with what was filled in
  inferd route --places FILE        send requests to many servers that act as one
  inferd status [--port PORT]       show the processes of servers with --workers
  inferd reload [--port PORT]       replace the processes of such a server, one after another
  inferd deploy FILE --ray ADDRESS  run replicas on a Ray cluster, as a models.toml says
  inferd places --ray ADDRESS       show where they serve
  inferd convert MODEL -o OUT.onnx  make an ONNX model of one of scikit-learn ...
  inferd replay LOG --url URL       send the requests of a payload log again, compare the answers
  inferd key NAME FILE              make an API key for --api-key-file
  inferd completion SHELL           print what makes bash, zsh or fish complete all this
  inferd --version                  print the version, and whether it is compiled
  inferd --help                     print this

Try it:

  inferd serve models/
  curl localhost:8000/v2/health/ready
"""

_SERVE = """\
inferd serve PATH... [options]

Serves the models in one or more repositories. PATH is a folder of model folders, each with
numbered version folders in it: models/resnet/1/model.onnx. PATH may also be the folder or the
file of a single model (resnet.onnx, or /mnt/models with --model-name resnet), or a Python file
whose functions are models (@inferd.model). The log says what each PATH was taken for.

Every option can be set in three ways. The flag overrides the variable, the variable the file:

  --http-port 8080          flag (also --http-port=8080)
  INFERD_HTTP_PORT=8080     environment variable; lists are separated by ";"
  http-port = 8080          line in a TOML file, named with --config FILE

Booleans may stand alone: --exit-on-error is --exit-on-error=true. Underscores in flags are
hyphens: --http_port is --http-port.
"""

_SIGNALS = """\
SIGTERM or Ctrl-C ends the server: readiness turns false at once, and requests in flight are
finished. The exit code is 0, or 1 if --exit-timeout-secs was too short for some requests. A
second signal ends the server at once, with 128 plus the signal's number. Code 1 also means that
the server could not start, and 2 that its options are wrong.
"""


def serve_help(kind: type = ServerConfig) -> str:
    """Return the help of `inferd serve`, with the options in groups."""
    parts, idle = [_SERVE], []
    for group, options in groups_of(kind).items():
        shown = [each for each in options if each.acted_on]
        idle += [each for each in options if not each.acted_on]
        if shown:
            parts.append("\n".join([group, *_lines(shown)]) + "\n")
    if idle:
        names = " ".join(each.flag for each in idle)
        parts.append(
            "Accepted so that existing command lines work, but without effect in this version\n"
            + textwrap.indent(_wrap(names, _WIDTH - 2), "  ")
            + "\n"
        )
    parts.append(_SIGNALS)
    return "\n".join(parts)


def _lines(options: Iterable[Option]) -> Iterator[str]:
    for each in options:
        left = f"  {each.flag} {each.word}"
        text = f"{each.help} Also: {each.also}." if each.also else each.help
        text += f" [{each.shown}]" if each.shown else ""
        wrapped = _wrap(text, _WIDTH - _COLUMN).splitlines()
        # A flag that is too long has a line of its own.
        if len(left) >= _COLUMN:
            yield left
        else:
            yield left.ljust(_COLUMN) + wrapped.pop(0)
        yield from (" " * _COLUMN + line for line in wrapped)


def _wrap(text: str, width: int) -> str:
    # Flags have hyphens, and must stay whole to be copied.
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
