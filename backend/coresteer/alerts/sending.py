"""Sends notifications: HTTP within bounds, e-mail by SMTP in a thread; the result of each attempt is a sentence."""

import http.client
import smtplib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from functools import partial
from urllib.parse import urlsplit
from uuid import UUID

from coresteer.alerts.messages import HttpMessage, to_email, to_http
from coresteer.alerts.schemas import Notification, ReceiverKind
from coresteer.alerts.tables import ReceiverRow
from coresteer.guarded_http import ForbiddenAddressError, GuardedHttp, TooLargeError, tls_context, why

TIMEOUT_S = 10.0
_PERMANENT_EXCEPT = (408, 425, 429)
_FAILURES = (
    ForbiddenAddressError,
    TooLargeError,
    OSError,  # with TimeoutError, and those of smtplib and ssl
    http.client.HTTPException,
    UnicodeError,
)


@dataclass(frozen=True)
class Attempt:
    """Result of an attempt: delivered or not, with a sentence. final: it is not tried again."""

    delivered: bool
    outcome: str
    final: bool = False


class Sending:
    """Sends notifications to receivers. timeout_s: of one attempt, shorter in tests."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._http = GuardedHttp(8, "alerts")

    async def send(self, receiver: ReceiverRow, delivery: UUID, notification: Notification) -> Attempt:
        """Tell a receiver. Never raises."""
        try:
            if receiver.kind == ReceiverKind.EMAIL:
                return await self._send_email(receiver, to_email(receiver, delivery, notification))
            return await self._post(to_http(receiver, delivery, notification, datetime.now(UTC)))
        except _FAILURES as error:
            return self._failed(urlsplit(receiver.url).hostname or "", error)

    def _failed(self, host: str, error: Exception) -> Attempt:
        final = False
        match error:
            case ForbiddenAddressError():
                where = "a link-local address or that of a cloud's metadata service"
                sentence, final = f"{host} has {where}. Coresteer contacts no such server.", True
            case TooLargeError():
                sentence, final = f"The answer of {host} is too large.", True
            case TimeoutError():
                sentence = f"{host} did not answer within {self._timeout_s:g} s."
            case smtplib.SMTPResponseException():
                said = error.smtp_error
                text = said.decode(errors="replace") if isinstance(said, bytes) else said
                sentence, final = f"{host} refused it: {error.smtp_code} {text[:200]}.", error.smtp_code >= 500
            case smtplib.SMTPRecipientsRefused():
                final = all(code >= 500 for code, _ in error.recipients.values())
                sentence = f"{host} refused {_refused(error.recipients)}."
            case smtplib.SMTPNotSupportedError() | smtplib.SMTPServerDisconnected():
                sentence = f"{host}: {str(error).rstrip('.')[:200]}."
            case _:
                sentence = f"{host} cannot be reached: {why(error)[:200]}."
        return Attempt(False, sentence, final)

    async def _post(self, message: HttpMessage) -> Attempt:
        server = urlsplit(message.url)
        path = (server.path or "/") + (f"?{server.query}" if server.query else "")
        status, _ = await self._http.request(
            "POST", server, path, headers=message.headers, body=message.body, timeout_s=self._timeout_s
        )
        if 200 <= status < 300:
            return Attempt(True, f"{server.hostname} accepted it ({status}).")
        hint = "; redirects are not followed, so enter the address that it names" if 300 <= status < 400 else ""
        final = 300 <= status < 500 and status not in _PERMANENT_EXCEPT
        return Attempt(False, f"{server.hostname} answered {status}{hint}.", final=final)

    async def _send_email(self, receiver: ReceiverRow, message: EmailMessage) -> Attempt:
        server = urlsplit(receiver.url)
        port = server.port or (465 if server.scheme == "smtps" else 587)
        await self._http.resolve(server.hostname or "", port)
        refused = await self._http.in_thread(partial(self._hand_over, receiver, message, port))
        but = f", but refused {_refused(refused)}" if refused else ""
        return Attempt(True, f"{server.hostname} accepted the e-mail{but}.")

    def _hand_over(self, receiver: ReceiverRow, message: EmailMessage, port: int) -> Mapping[str, tuple[int, bytes]]:
        """Send an e-mail; return the recipients that the server refused, if not all, with its answers.

        smtp:// uses STARTTLS where the server offers it; a password is sent only encrypted.
        """
        server = urlsplit(receiver.url)
        host = server.hostname or ""
        client: smtplib.SMTP
        if server.scheme == "smtps":
            client = smtplib.SMTP_SSL(host, port, timeout=self._timeout_s, context=tls_context())
        else:
            client = smtplib.SMTP(host, port, timeout=self._timeout_s)
        with client:
            client.ehlo_or_helo_if_needed()
            is_encrypted = server.scheme == "smtps"
            if not is_encrypted and client.has_extn("starttls"):
                client.starttls(context=tls_context())
                client.ehlo()
                is_encrypted = True
            if receiver.username:
                if not is_encrypted:
                    raise smtplib.SMTPResponseException(538, "it offers no encryption, so no password is sent")
                client.login(receiver.username, receiver.secret)
            return client.send_message(message)


def _refused(recipients: Mapping[str, tuple[int, bytes]]) -> str:
    """Return recipients with the server's answer to each, for a sentence."""
    answers = (f"{to}: {code} {said.decode(errors='replace')}" for to, (code, said) in recipients.items())
    return "; ".join(answers)[:300].rstrip(".")
