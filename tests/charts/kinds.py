"""What is wrong with a manifest of Kubernetes, KServe, KEDA or Prometheus Operator."""

import json
from pathlib import Path

import jsonschema
import kubernetes_validate
import pydantic
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as prometheus

KUBERNETES = "1.34"

SCHEMAS = Path(__file__).parent / "schemas"
KSERVE = {
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): "clusterservingruntime",
    ("serving.kserve.io/v1beta1", "InferenceService"): "inferenceservice",
}
TYPED = {
    ("keda.sh/v1alpha1", "ScaledObject"): keda.ScaledObject,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): prometheus.ServiceMonitor,
}


def faults(manifest):
    """Return what is wrong with `manifest`, in words that name the field; nothing if all is well.

    An unknown field is wrong, and so is a kind that is not known here.
    """
    kind = manifest["apiVersion"], manifest["kind"]
    if kind in KSERVE:
        found = _by_schema(manifest, KSERVE[kind], kind[0].rpartition("/")[2])
        return found + _of_metadata(manifest)
    if kind in TYPED:
        return _by_type(manifest, TYPED[kind])
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [f"kind: {error}"]
    return []


def _of_metadata(manifest):
    """Return what is wrong with the metadata, which are those of every kind."""
    return faults({"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifest["metadata"]})


def _by_schema(manifest, name, version):
    schema = closed(json.loads((SCHEMAS / f"{name}.schema.json").read_text())[version])
    schema["properties"] |= {key: {"type": "string"} for key in ("apiVersion", "kind")}
    schema["properties"]["metadata"] = {"type": "object"}  # is checked as that of every kind
    found = jsonschema.Draft7Validator(schema).iter_errors(manifest)
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in found]


def closed(schema):
    """Return `schema` with unknown fields refused in each object that lists its own."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    new = {key: closed(value) for key, value in schema.items()}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and "type" in schema and not is_open:
        new["additionalProperties"] = False
    return new


def _by_type(manifest, model):
    try:
        read = model.model_validate(manifest)
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return list(_lost(manifest, read.model_dump(mode="json", by_alias=True, exclude_unset=True)))


def _lost(given, read, path=()):
    """Yield the fields of `given` that a model has not read, as unknown ones."""
    if isinstance(given, dict):
        for key, value in given.items():
            if key not in read:
                yield f"{'.'.join(map(str, (*path, key)))}: there is no such field"
            else:
                yield from _lost(value, read[key], (*path, key))
    elif isinstance(given, list):
        for number, pair in enumerate(zip(given, read, strict=True)):
            yield from _lost(*pair, (*path, number))
