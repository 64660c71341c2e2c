"""No request is lost when a server is stopped under load; stop_under_load.py has longer forms."""

import sys

import pytest
from stop_under_load import play


@pytest.mark.slow
@pytest.mark.parametrize(("options", "rounds"), [((), 4), (("--drain-delay=0.5",), 2)])
def test_a_stop_loses_no_request(options, rounds, capsys):
    counts, times_s = play(options, rounds)
    with capsys.disabled():
        sys.stdout.write(f"\n{rounds} SIGTERMs {options}: {dict(counts)}, {max(times_s):.1f} s\n")
    assert (counts["wrong"], counts["lost"], counts.faults) == (0, 0, [])
    assert counts["answered"] > 100 * rounds
