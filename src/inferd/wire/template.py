"""Template: what requests say that are alike but for their holes, the id and the data of inputs.

Clients repeat their calls. So a codec keeps what it has read as a template, finds the template of a
request by the bytes around its holes, and has it filled: nothing is parsed or checked again
(docs/decisions/0054-templates.md).
"""

from inferd.core.request import InferRequest, Resolve, Sequence, Span, WantedOutput
from inferd.memory.buffer import Buffer
from inferd.tensor.tensor import Tensor
from inferd.wire.shared_memory import Reference, place_output, read_input, take_spans


class Template:
    """One of these requests is the `pattern`: it lacks id and data. Never change it.

    `sizes` are the bytes of the data that come with each, in order; -1 where they vary. Of tensors
    in shared memory, `inputs` and `outputs` say which ones and where, by index: each request looks
    them up itself.
    """

    def __init__(
        self,
        pattern: InferRequest,
        sizes: list[int],
        inputs: list[tuple[int, Reference]],
        outputs: list[tuple[int, Reference]],
    ) -> None:
        self.pattern = pattern
        self.sizes = sizes
        self.inputs = inputs
        self.outputs = outputs

    def filled(self, data: list[Buffer]) -> InferRequest:
        """Return a new request with `data`, one buffer for each input; any for those elsewhere."""
        pattern = self.pattern
        inputs: list[Tensor] = []
        # All that models may change, rename, reshape or add to is made anew.
        for index, tensor in enumerate(pattern.inputs):
            parameters = tensor.parameters
            if parameters:
                parameters = parameters.copy()
            inputs.append(
                Tensor(tensor.name, tensor.datatype, tensor.shape, data[index], parameters)
            )
        request = InferRequest(
            pattern.model, pattern.version, "", inputs, pattern.outputs, pattern.parameters
        )
        if pattern.parameters:
            request.parameters = pattern.parameters.copy()
        request.binary_output = pattern.binary_output
        request.priority = pattern.priority
        request.timeout_us = pattern.timeout_us
        request.empty_final = pattern.empty_final
        request.batch_key = pattern.batch_key
        sequence = pattern.sequence
        if sequence is not None:
            request.sequence = Sequence(sequence.id, sequence.start, sequence.end)
        return request

    def share(self, request: InferRequest, resolve: Resolve, *, on_loop: bool) -> None:
        """Give `request`, made by `filled`, its tensors in shared memory.

        Raises the errors of `resolve`, InvalidRequest, and with `on_loop` NotFast for what takes
        long to copy.
        """
        spans: list[Span] = []
        for index, reference in self.inputs:
            span = resolve(reference[0], reference[1], reference[2])
            spans.append(span)
            read_input(request.inputs[index], span, request.model, on_loop=on_loop)
        if self.outputs:  # each request has places of its own
            outputs = request.outputs
            request.outputs = [WantedOutput(one.name, one.binary, one.top_k) for one in outputs]
        for index, reference in self.outputs:
            spans.append(place_output(request.outputs[index], reference, resolve))
        take_spans(request, spans, on_loop=on_loop)
