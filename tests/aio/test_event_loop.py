import os
import subprocess
import sys

import pytest

KIND = "from inferd.aio.event_loop import new_event_loop; print(type(new_event_loop()).__module__)"
NOT_INSTALLED = "import sys; sys.modules['uvloop'] = None; "


@pytest.mark.parametrize(
    ("before", "without", "module"),
    [("", "", "uvloop"), (NOT_INSTALLED, "", "asyncio"), ("", "memfd,uvloop", "asyncio")],
)
def test_it_is_uvloops_where_that_is_installed_and_wanted(before, without, module):
    said = subprocess.run(
        [sys.executable, "-c", before + KIND],
        env=os.environ | {"INFERD_WITHOUT": without},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith(module)
