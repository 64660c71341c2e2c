"""The names of the parameters that inferd reads of a model's configuration."""

ANY_INPUT_NAME = "inferd_any_input_name"
"""If "true", requests may call the model's only input by any name."""

TABLE = "inferd_table"
"""If "true", the model takes rows as clients have them: an array of any datatype, or a table with
one input per column; and any number of rows."""

FOUND_OUTPUTS = "inferd_found_outputs"
"""If "true", datatypes and dims of the outputs are only expected: what the model gives is right."""

CONVERT = "inferd_convert"
"""If "onnx", a model of a library for tables is converted when it loads, and run in ONNX Runtime,
if it answers as the library does."""

CONVERT_SAMPLE = "inferd_convert_sample"
"""A file in the model's folder with rows on which both are compared; see inferd convert."""

CONVERT_TOLERANCE = "inferd_convert_tolerance"
"""How much a number may differ, as a share of it or, below 1, as it is."""

MODEL_CLASS = "inferd_model_class"
"""The class that a file of XGBoost's or CatBoost's was saved from, as MLflow writes it."""

COLUMNS = "inferd_columns"
"""The columns of a model that does not know their names, in its order: a JSON array of texts."""

DEFAULT_OUTPUTS = "inferd_default_outputs"
"""The outputs, separated by commas, of a request that asks for none."""

ALLOW_NATIVE = "inferd_allow_native_code"
"""If "true", the model may contain compiled code. See `check_native`."""

EXECUTION_TIMEOUT = "inferd_execution_timeout_seconds"
"""The seconds an execution may take; a worker process that takes longer is replaced."""

TRUSTED = "inferd_trusted_types"
"""A comma-separated list of types that a skops file may have."""

MOST_ELEMENTS = "inferd_most_elements"
"""The elements that an operator may make of numbers in a request, such as the shape for Expand."""

VERSION_NAME = "inferd_version_name"
"""A name for the model's version in addition to its number, such as v0.1.0."""

PLACEMENT = "inferd_placement"
"""In which of a server's processes the model is: "auto", "copy", "single" or "spread"."""

JOINED = "inferd_joined"
"""What the server says of a configuration in force: requests are "joined", "alone", "compared"."""

JOINING_REASON = "inferd_joining_reason"
"""Why the server joins requests or does not, in a configuration in force."""

PROCESS = "inferd_process"
"""Where a model of a backend that can host its models runs: in the "server", or in a "worker"."""
