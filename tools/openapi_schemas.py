"""The schemas of the OpenAPI document: the bodies of requests and answers."""

from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
DATATYPES = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
    "FP16", "BF16", "FP32", "FP64", "BYTES",
]  # fmt: skip


def ref(name: str) -> Schema:
    """Refer to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **more: object) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items, **more}


def nullable(schema: Schema) -> Schema:
    """Return `schema` with null allowed: in requests it means absent."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    allowed = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, **allowed, "type": [schema["type"], "null"]}


def record(text: str, needed: str = "", **properties: Schema) -> Schema:
    """Return the schema of an object; `needed` are the names of required properties."""
    schema: Schema = {"type": "object", "description": text, "properties": properties}
    if needed:
        schema["required"] = needed.split()
    return schema


def described(schema: Schema, text: str) -> Schema:
    """Add a description."""
    return {**schema, "description": text}


_PARAMETERS: Schema = {
    "type": "object",
    "description": "Extensions and custom parameters: docs/reference/extensions.md has them all.",
    "additionalProperties": {"type": ["string", "boolean", "number"]},
}
_DURATION = ref("Duration")


def _settings(text: str, **properties: Schema) -> Schema:
    """Return the schema of a request that changes settings: each may be left out, or null."""
    return record(text, **{name: nullable(schema) for name, schema in properties.items()})


_LOG = {
    "log_file": {
        "type": "string",
        "description": "A file's name, without its folder.",
        "pattern": "^([A-Za-z0-9_-][A-Za-z0-9._-]{0,199})?$",
    },
    "log_info": BOOLEAN,
    "log_warning": BOOLEAN,
    "log_error": BOOLEAN,
    "log_verbose_level": {**COUNT, "maximum": 2**32 - 1},
    "log_format": {"type": "string", "enum": ["default", "ISO8601", "json"]},
}
_TRACE = {
    "trace_level": described(
        array(STRING), "OFF, TIMESTAMPS, TENSORS; other words are passed over."
    ),
    "trace_rate": {"type": "string", "pattern": "^[0-9]{1,9}$"},
    "trace_count": {"type": "string", "pattern": "^(-1|[0-9]{1,9})$"},
    "log_frequency": {"type": "string", "pattern": "^[0-9]{1,9}$"},
}

SCHEMAS: dict[str, Schema] = {
    "Error": record("What went wrong.", "error", error=STRING),
    "Live": record("Whether the process answers.", "live", live=BOOLEAN),
    "Ready": record(
        "Whether models can be asked.", "live ready", live=BOOLEAN, ready=BOOLEAN, error=STRING
    ),
    "ModelReady": record(
        "Whether this model can be asked.", "name ready", name=STRING, ready=BOOLEAN, error=STRING
    ),
    "ServerMetadata": record(
        "What the server is.",
        "name version extensions",
        name=STRING,
        version=STRING,
        extensions=array(STRING),
    ),
    "ModelNames": record("The ready models.", "models", models=array(STRING)),
    "ModelMetadata": record(
        "What a model takes and gives.",
        "name versions platform inputs outputs",
        name=STRING,
        versions=described(array(STRING), "The ready ones, or the one that was asked for."),
        platform=STRING,
        inputs=array(ref("TensorMetadata")),
        outputs=array(ref("TensorMetadata")),
    ),
    "TensorMetadata": record(
        "A tensor's name and kind.",
        "name datatype shape",
        name=STRING,
        datatype=ref("Datatype"),
        shape=described(array({"type": "integer", "minimum": -1}), "-1 is any size."),
    ),
    "Datatype": {"type": "string", "enum": DATATYPES},
    "Data": {
        "description": "The elements, flat or nested, or the tensor's bytes in base64.",
        "anyOf": [{"type": "array"}, {"type": "string", "contentEncoding": "base64"}],
    },
    "RequestParameters": {
        "type": ["object", "null"],
        "description": _PARAMETERS["description"],
        "properties": {
            "binary_data_output": nullable(BOOLEAN),
            "priority": nullable(COUNT),
            "timeout": nullable(COUNT),
            "sequence_id": {"anyOf": [COUNT, STRING, {"type": "null"}]},
            "sequence_start": nullable(BOOLEAN),
            "sequence_end": nullable(BOOLEAN),
            "triton_enable_empty_final_response": nullable(BOOLEAN),
        },
        "additionalProperties": {"type": ["string", "boolean", "number", "null"]},
    },
    "InferRequest": record(
        "An inference. Keys that are not listed are passed over.",
        "inputs",
        id=nullable(STRING),
        parameters=ref("RequestParameters"),
        inputs=array(ref("InferInput")),
        outputs=nullable(array(ref("WantedOutput"))),
    ),
    "InferInput": record(
        "An input; its elements are in `data`, behind the JSON (`binary_data_size`) or in shared "
        "memory.",
        "name datatype shape",
        name=STRING,
        datatype={"type": "string", "enum": [*DATATYPES, "STRING"]},
        shape=described(
            array({"type": "integer", "minimum": -1}),
            "One -1 stands for the size that follows from the number of elements in `data`.",
        ),
        parameters=nullable(
            record(
                "What is known here; other names are passed over.",
                binary_data_size=nullable(COUNT),
                shared_memory_region=nullable(STRING),
                shared_memory_byte_size=nullable(COUNT),
                shared_memory_offset=nullable(COUNT),
            )
        ),
        data=ref("Data"),
    ),
    "WantedOutput": record(
        "An output the answer is to have.",
        "name",
        name=STRING,
        parameters=nullable(
            record(
                "What is known here; other names are passed over.",
                binary_data=nullable(BOOLEAN),
                classification=nullable(COUNT),
                shared_memory_region=nullable(STRING),
                shared_memory_byte_size=nullable(COUNT),
                shared_memory_offset=nullable(COUNT),
            )
        ),
    ),
    "InferResponse": record(
        "The answer of a model.",
        "model_name model_version outputs",
        id=described(STRING, "That of the request, if it had one."),
        model_name=STRING,
        model_version=STRING,
        parameters=_PARAMETERS,
        outputs=array(ref("InferOutput")),
    ),
    "InferOutput": record(
        "An output, in the order of the model's metadata.",
        "name datatype shape",
        name=STRING,
        datatype=ref("Datatype"),
        shape=array(COUNT),
        parameters=_PARAMETERS,
        data=described({"type": "array"}, "Flat. Not there when the elements are elsewhere."),
    ),
    "GenerateRequest": record(
        "A flat object: a key that is an input's name is that tensor, any other a parameter.",
        id=nullable(STRING),
        parameters=nullable({"type": "object"}),
    ),
    "GenerateResponse": record(
        "A flat object with a key for each output: one element as it is, several as an array.",
        "model_name model_version",
        id=STRING,
        model_name=STRING,
        model_version=STRING,
    ),
    "ModelConfig": record(
        "The configuration in force, with the names of config.pbtxt and its defaults filled in.",
        "name platform backend max_batch_size input output",
        name=STRING,
        platform=STRING,
        backend=STRING,
        max_batch_size=COUNT,
        input=array({"type": "object"}),
        output=array({"type": "object"}),
    ),
    "Statistics": record(
        "A row for each ready version.", "model_stats", model_stats=array(ref("ModelStatistics"))
    ),
    "ModelStatistics": record(
        "What one model version has done.",
        "name version last_inference inference_count execution_count inference_stats "
        "response_stats batch_stats memory_usage",
        name=STRING,
        version=STRING,
        last_inference=described(COUNT, "Milliseconds since 1970; 0: never."),
        inference_count=COUNT,
        execution_count=COUNT,
        inference_stats={"type": "object", "additionalProperties": _DURATION},
        response_stats={
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": _DURATION},
        },
        batch_stats=array(
            record(
                "The executions of one batch size.",
                "batch_size compute_input compute_infer compute_output",
                batch_size=COUNT,
                compute_input=_DURATION,
                compute_infer=_DURATION,
                compute_output=_DURATION,
            )
        ),
        memory_usage=array(
            record(
                "Memory of one kind.", "type id byte_size", type=STRING, id=COUNT, byte_size=COUNT
            )
        ),
    ),
    "Duration": record("How often, and how long together.", "count ns", count=COUNT, ns=COUNT),
    "IndexRequest": record(
        "Which models to tell of.", ready=described(nullable(BOOLEAN), "Ready ones only.")
    ),
    "Index": array(
        record(
            "One version of a model, or a model that was never loaded.",
            "name",
            name=STRING,
            version=STRING,
            state={
                "type": "string",
                "enum": ["UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"],
            },
            reason=STRING,
        )
    ),
    "LoadRequest": record(
        "How to load: `config` holds a configuration in JSON, each `file:<path>` a file in base64.",
        parameters=nullable(
            record("Strings.", config=STRING) | {"patternProperties": {"^file:": STRING}}
        ),
    ),
    "Loaded": record("What was loaded.", "name load", name=STRING, load=BOOLEAN),
    "UnloadRequest": record(
        "How to unload.",
        parameters=nullable(record("What is known here.", unload_dependents=nullable(BOOLEAN))),
    ),
    "Unloaded": record("What was unloaded.", "name unload", name=STRING, unload=BOOLEAN),
    "SystemRegionRequest": record(
        "POSIX shared memory.", "key byte_size", key=STRING, byte_size=COUNT, offset=nullable(COUNT)
    ),
    "SystemRegions": array(
        record(
            "A region.",
            "name key offset byte_size",
            name=STRING,
            key=STRING,
            offset=COUNT,
            byte_size=COUNT,
        )
    ),
    "CudaRegionRequest": record(
        "Memory of a GPU.",
        "raw_handle device_id byte_size",
        raw_handle=record("A cudaIpcMemHandle.", "b64", b64={"type": "string"}),
        device_id=COUNT,
        byte_size=COUNT,
    ),
    "CudaRegions": array(
        record(
            "A region.", "name device_id byte_size", name=STRING, device_id=COUNT, byte_size=COUNT
        )
    ),
    "TraceSettings": record(
        "All settings.",
        "trace_level trace_rate trace_count log_frequency trace_file trace_mode",
        **_TRACE,
        trace_file=STRING,
        trace_mode=STRING,
    ),
    "TraceChange": _settings("Settings to change; null goes back to what held before.", **_TRACE),
    "LogSettings": record("All settings.", " ".join(_LOG), **_LOG),
    "LogChange": _settings("Settings to change; null changes nothing.", **_LOG),
    "ProtoFiles": record("Names of files.", "files", files=array(STRING)),
}
