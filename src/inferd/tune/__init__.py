"""Tune: finds the settings of a model that serve most under a goal, by measuring some of them."""
