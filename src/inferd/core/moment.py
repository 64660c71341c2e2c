"""Moment: whether anything can have been asked for since somebody looked."""


class Moment:
    """The round of turns that is under way, by its `number`; 0 between rounds.

    Every request of a round was read before the round began (inferd.transport.turns). So what was
    true for one of them since is true for all of them: whoever changed something before sending a
    request did so before the round. Other threads may ask for the number. `count` are the rounds
    there have been.
    """

    __slots__ = ("count", "number")

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
