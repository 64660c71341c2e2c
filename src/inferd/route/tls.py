"""TLS in front: certificate and key as HAProxy wants them, and new ones while it runs."""

from pathlib import Path

from inferd.errors import InvalidConfig
from inferd.route.configuration import RouteSettings
from inferd.route.runtime import CommandFailed, RuntimeSocket

LOOK_S = 2.0
"""The seconds between two looks at the files."""


class FrontTls:
    """The files of TLS, and the one in `folder` that HAProxy reads: certificate and key together.

    Raises InvalidConfig if they cannot be read; whether they fit, HAProxy will say.
    """

    def __init__(self, settings: RouteSettings, folder: Path) -> None:
        self._names = [one for one in (settings.tls_cert, settings.tls_key) if one is not None]
        self._client_ca = settings.tls_client_ca
        self._path = folder / "tls.pem"
        self._text = ""
        if self._names:
            self._text = self._read()
            # It has a private key in it; made before it is written.
            self._path.touch(0o600)
            self._path.write_text(self._text)

    @property
    def is_on(self) -> bool:
        """Whether the ports speak TLS."""
        return bool(self._names)

    @property
    def words(self) -> str:
        """What follows each bind."""
        if not self._names:
            return ""
        words = f" ssl crt {self._path} alpn h2,http/1.1 ssl-min-ver TLSv1.2"
        if self._client_ca is not None:
            words += f" ca-file {Path(self._client_ca).absolute()} verify required"
        return words

    async def renew(self, runtime: RuntimeSocket) -> bool:
        """Have HAProxy use the files if they have changed, for new connections; tell if they have.

        Raises InvalidConfig if they cannot be read, CommandFailed if HAProxy refuses them. It then
        goes on with those it has.
        """
        if (text := self._read()) == self._text:
            return False
        # Before it is tried: files that HAProxy refuses are not tried again every two seconds.
        self._text = text
        # A transaction: new connections get the new pair only once it is complete and fits.
        said = await runtime.ask(f"set ssl cert {self._path} <<\n{text}\n")
        if "Transaction" not in said:
            raise CommandFailed(f"HAProxy refused the certificate: {said}")
        said = await runtime.ask(f"commit ssl cert {self._path}")
        if "Success" not in said:
            await runtime.ask(f"abort ssl cert {self._path}")
            raise CommandFailed(f"HAProxy refused the certificate: {said}")
        self._path.write_text(text)  # for one that is started anew
        return True

    def _read(self) -> str:
        try:
            texts = [Path(name).read_text() for name in self._names]
        except (OSError, ValueError) as error:
            raise InvalidConfig(f"--tls-cert and --tls-key: {error}") from error
        # An empty line would end it on the runtime socket.
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        return "".join(f"{line}\n" for line in lines)
