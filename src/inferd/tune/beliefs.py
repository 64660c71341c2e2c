"""Beliefs: what is expected of each kind of cost before anything is measured.

They are the ones under which the recorded costs of real models (tests/tune/surfaces) are likeliest.
The columns are those of effects.NAMES.
"""

from inferd.tune.expected import Belief

# In logarithms: 0.14 is 15 % more requests. Found by tests/tune; see docs/decisions/0043-tuning.md.
RATE = Belief(
    effects=(0.14, 0.073, -0.49, -0.049, 0.41, 0.42, -0.039, -0.15, 0.071),
    errors=(0.12, 0.12, 0.31, 0.24, 0.39, 0.37, 0.12, 0.19, 0.12),
    alone=0.03,
    pairs=0.047,
    together=0.094,
    steps=0.72,
    noise=0.11,
)
LATENCY = Belief(
    effects=(-0.19, -0.037, 0.2, -0.058, -0.3, -0.22, 0.13, 0.18, -0.076),
    errors=(0.28, 0.12, 0.16, 0.34, 0.32, 0.51, 0.12, 0.27, 0.12),
    alone=0.055,
    pairs=0.062,
    together=0.13,
    steps=0.66,
    noise=0.26,
)
MEMORY = Belief(
    effects=(0, 0, 0, -0.0, 0, 0.17, 0.1, 0.033, 0),
    # Nearly 0 where memory cannot depend on an effect.
    errors=(0.01, 0.006, 0.017, 0.003, 0.003, 1.1, 0.41, 0.16, 0.003),
    alone=0.27,
    pairs=0.03,
    together=0.03,
    steps=3,
    noise=0.03,
)
