"""URLs of repositories in the cloud, as --model-repository takes them, in Triton's syntax."""

import re
from typing import NamedTuple

from inferd.errors import InvalidConfig

SCHEMES = {"s3": "Amazon S3", "gs": "Google Cloud Storage", "as": "Azure Blob Storage"}
"""The schemes of URLs, and the storage each stands for."""

_URL = re.compile(r"(s3|gs|as)://(.*)", re.DOTALL)
# Of two forms, as in Triton: HOST:PORT, where the port tells it from the name of a bucket; and
# anything behind http:// or https://, where the scheme does.
_ENDPOINT = re.compile(r"(https?://)?([^/]+:\d+|(?<=://)[^/]+)(?:/(.*))?", re.DOTALL)


class CloudUrl(NamedTuple):
    """Where a repository lies: below `prefix` ("" for all) in a bucket or container.

    `endpoint` is the URL of the storage server if it is not the provider's; `account` is Azure's.
    """

    text: str
    scheme: str
    bucket: str
    prefix: str
    endpoint: str = ""
    account: str = ""


def cloud_url(text: str) -> CloudUrl | None:
    """Return the URL in `text`, None if it is a path on this machine.

    s3://BUCKET/PATH, s3://HOST:PORT/BUCKET/PATH (http), s3://https://HOST:PORT/BUCKET/PATH,
    gs://BUCKET/PATH, as://ACCOUNT/CONTAINER/PATH. Raises InvalidConfig when a part is missing.
    """
    found = _URL.fullmatch(text)
    if found is None:
        return None
    scheme, rest = found.groups()
    endpoint = account = ""
    if scheme == "s3" and (own := _ENDPOINT.fullmatch(rest)):
        protocol, host, rest = own.groups(default="")
        # Plain HOST:PORT is HTTP in Triton: that is how MinIO and other
        # servers of one's own are named.
        endpoint = f"{protocol or 'http://'}{host}"
    elif scheme == "as":
        host, _, rest = rest.partition("/")
        # The host may be written out, ACCOUNT.blob.core.windows.net; obstore wants the account.
        account = host.partition(".")[0]
    bucket, _, prefix = rest.partition("/")
    if not bucket or (scheme == "as" and not account):
        example = "as://ACCOUNT/CONTAINER/PATH" if scheme == "as" else f"{scheme}://BUCKET/PATH"
        msg = f"'{text}' names no place in {SCHEMES[scheme]}, expected {example}"
        raise InvalidConfig(msg)
    return CloudUrl(text, scheme, bucket, prefix.strip("/"), endpoint, account)
