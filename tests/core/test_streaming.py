import asyncio

from inferd.core.request import InferRequest, InferResponse
from inferd.core.streaming import one_answer


def test_the_one_answer_is_the_whole_stream():
    async def run(request):
        return InferResponse(request.model, "1")

    async def go():
        return [one.model async for one in one_answer(run, InferRequest("m"))]

    assert asyncio.run(go()) == ["m"]
