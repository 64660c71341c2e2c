"""How the metrics of model.py reach the server."""

from inferd_worker.pb_utils import metric
from inferd_worker.pb_utils.metric import MetricFamily


class Server:
    """Stands for what the server is told."""

    def __init__(self):
        self.commands = []
        self.line = self

    def command(self, *arguments):
        self.commands.append(arguments)

    def send(self, kind, document):
        self.commands.append(document)


def test_a_metric_asked_for_with_each_request_is_made_once(monkeypatch):
    server = Server()
    monkeypatch.setattr(metric, "current_calls", lambda: server)
    family = MetricFamily("seen_by_test", "d", MetricFamily.COUNTER)
    for _ in range(3):
        family.Metric({"user": 1, "b": "c"}).increment(1)
    family.Metric({"b": "c", "user": "1"}).increment(2)
    family.Metric({"user": 2}).increment(1)
    made = [command for command in server.commands if command[0] == "metric"]
    assert [command[3] for command in made] == [{"user": "1", "b": "c"}, {"user": "2"}]
    first, second = (command[1] for command in made)
    counted = [tuple(command) for command in server.commands if command[1] == "increment"]
    of_first = [(first, "increment", 1.0)] * 3
    assert counted == [*of_first, (first, "increment", 2.0), (second, "increment", 1.0)]
