"""What runs whole examples is collected in their environment alone: `make examples`."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("nbclient") else ["test_gallery.py", "test_notebook.py"]
