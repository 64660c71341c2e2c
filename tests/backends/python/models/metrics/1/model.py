"""The model's own metrics."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        family = pb_utils.MetricFamily(
            name="requests_of_mine", description="How many", kind=pb_utils.MetricFamily.COUNTER
        )
        self.counter = family.Metric(labels={"model": args["model_name"], "quoted": 'a"b'})
        self.gauge = pb_utils.MetricFamily("last_of_mine", "The last", 1).Metric()
        histogram = pb_utils.MetricFamily("sizes_of_mine", "Sizes", pb_utils.MetricFamily.HISTOGRAM)
        self.sizes = histogram.Metric(labels={"kind": "in"}, buckets=[1.0, 10.0])
        for wrong in (lambda: histogram.Metric(), lambda: family.Metric(buckets=[1.0])):
            try:
                wrong()
            except pb_utils.TritonModelException:
                continue
            raise AssertionError("a family took what it must not")

    def execute(self, requests):
        for request in requests:
            value = float(request.inputs()[0].as_numpy()[0])
            self.counter.increment(1)
            self.gauge.set(value)
            self.sizes.observe(value)
        out = np.array([self.counter.value(), self.gauge.value()])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]) for _ in requests]
