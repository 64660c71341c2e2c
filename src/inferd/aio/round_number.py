"""RoundNumber: tells whether a check made earlier still holds for the requests being answered."""


class RoundNumber:
    """The round of turns under way, by its `number`; 0 between rounds.

    Every request of a round was read before the round began (inferd.http.turns). So what was
    found true for one of them during the round holds for all: a client that changed something
    before sending a request did so before the round. Other threads may read the number. `count` is
    the number of rounds so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self.number = 0
