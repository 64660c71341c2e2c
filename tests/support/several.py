"""Engines that are one server, and what keeps their numbers."""

from inferd.observe.numbers import merged


class Several:
    """Engines by number. `kept` are the last numbers of each, `ended` those of the ended ones."""

    def __init__(self):
        self.engines = {}
        self.kept = {}
        self.ended = []
        self.asked = []

    def start(self, number, engine):
        """Have an engine be one of the processes."""
        self.engines[number] = engine
        engine.whole.others = _Others(self, number)

    def keep(self, number):
        """Note the numbers of an engine, as it would send them from time to time."""
        self.kept[number] = self.engines[number].whole.numbers()

    def end(self, number):
        """Have a process end at once; what it has not sent is lost."""
        del self.engines[number]
        if number in self.kept:
            self.ended = [merged([*self.ended, self.kept.pop(number)])]


class _Others:
    def __init__(self, several, number):
        self.several = several
        self.number = number

    async def numbers(self, own):
        several = self.several
        several.asked.append(self.number)
        several.kept[self.number] = own
        for number, engine in several.engines.items():
            if number != self.number:
                several.kept[number] = await engine.whole.fresh()
        living = [kept for number, kept in several.kept.items() if number != self.number]
        return [*living, *several.ended]
