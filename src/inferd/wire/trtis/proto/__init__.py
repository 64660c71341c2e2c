"""The messages of the TensorRT Inference Server API, as .proto and as descriptors."""
