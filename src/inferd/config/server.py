"""ServerConfig: every option of the server, each declared once, in the section that it belongs to.

A declaration yields the flag (--http-port), the environment variable (INFERD_HTTP_PORT), the key in
a TOML file (http-port), the help and docs/reference/options.md. Names and defaults are Triton's
wherever Triton has the option. Where a default differs, a comment gives the reason.
"""

from dataclasses import dataclass

from inferd.config.sections.backends import BackendsSection
from inferd.config.sections.cloud import CloudSection
from inferd.config.sections.ignored import IgnoredSection
from inferd.config.sections.logs import LogsSection
from inferd.config.sections.models import ModelsSection
from inferd.config.sections.process import ProcessSection
from inferd.config.sections.protocols import ProtocolsSection


# Python reads the fields of the last base first: the order of help and reference.
@dataclass(frozen=True, kw_only=True)
class ServerConfig(
    IgnoredSection,
    CloudSection,
    BackendsSection,
    LogsSection,
    ProtocolsSection,
    ProcessSection,
    ModelsSection,
):
    """The options. None and () mean "not set"."""
