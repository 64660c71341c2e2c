"""What processes still do for each other when they end."""

import asyncio
import os

from models import ECHO, HEAD, INT_CONFIG, SINGLE, TWICE
from test_scheduler import name_owned_by, values

# Calls another model once somebody opens the pipe that its configuration names.
LATE_CALLER = (
    HEAD
    + """
import json
class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.pipe = parameters["pipe"]["string_value"]
        self.called = parameters["called"]["string_value"]

    def execute(self, requests):
        responses = []
        for request in requests:
            with open(self.pipe) as pipe:
                pipe.read()
            call = pb_utils.InferenceRequest(
                model_name=self.called,
                requested_output_names=["OUT"],
                inputs=request.inputs(),
            )
            answer = call.exec()
            error = pb_utils.TritonError(answer.error().message()) if answer.has_error() else None
            tensors = [] if answer.has_error() else answer.output_tensors()
            responses.append(pb_utils.InferenceResponse(tensors, error))
        return responses
"""
)
PARAMETER = 'parameters { key: "%s" value: { string_value: "%s" } }\n'


def test_what_runs_for_others_in_a_process_that_ends_still_reaches_other_models(
    together, ask, until, tmp_path
):
    caller, twice = name_owned_by(1, 2, "caller"), name_owned_by(0, 2, "twice")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = SINGLE + INT_CONFIG + PARAMETER % ("pipe", pipe) + PARAMETER % ("called", twice)

    async def go():
        models = {caller: (config, LATE_CALLER), twice: (SINGLE + INT_CONFIG, TWICE)}
        async with together(2, **models) as all_:
            first, second = (engine.exchange for engine in all_.engines)
            await until(lambda: first._ends and second._ends)
            await until(lambda: first.peers.link(1))
            asked = asyncio.create_task(all_.engines[0].infer(ask(caller, IN=[7])))
            [end] = second._ends
            await until(lambda: end._running)
            ending = asyncio.create_task(second.finish(3600.0))
            await until(lambda: not first._wanting)
            await asyncio.to_thread(pipe.write_text, "go on")
            found = values(await asked)
            assert not ending.done()
            await first.finish(3600.0)
            await ending
            return found

    assert asyncio.run(go()) == [14]


def test_a_process_that_is_met_late_is_told_that_there_are_no_more_clients(together, until):
    async def go():
        async with together(2, m=(ECHO % ("INT32", "INT32"), None)) as all_:
            all_.tell()
            first, second = (engine.exchange for engine in all_.engines)
            await until(lambda: not (first._ends or second._ends))
            await asyncio.gather(first.finish(3600.0), second.finish(3600.0))
            all_.tell(0, 1)
            await until(lambda: first._ends and second._ends)
            await until(lambda: not (first._wanting or second._wanting))

    asyncio.run(go())
