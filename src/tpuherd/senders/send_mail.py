"""Sends a message by e-mail. It blocks: run it in a thread of its own."""

import smtplib
import socket
import ssl
from contextlib import suppress
from email.message import EmailMessage
from email.utils import formatdate

from tpuherd.jobfile.notify_fields import IMPLICIT, PLAIN_TEXT
from tpuherd.model.receivers import Receiver
from tpuherd.notify.compose import Message
from tpuherd.notify.outbox import SendProblem
from tpuherd.notify.payloads import plain_text

TIMEOUT_S = 20.0  #: to receive the next answer
PORTS = {IMPLICIT: 465, PLAIN_TEXT: 25}
SUBMISSION = 587
LASTING = 500  #: from this reply code on, a repeated try fails, too


def send_mail(receiver: Receiver, password: str, message: Message) -> SendProblem | None:
    """Send it; None: the server has accepted it."""
    port = receiver.port or PORTS.get(receiver.tls, SUBMISSION)
    try:
        server = connect_to_server(receiver, port)
        try:
            if receiver.user:
                server.login(receiver.user, password)
            server.send_message(mail_of(receiver, message))
        finally:
            with suppress(OSError, smtplib.SMTPException):  # what was accepted stays accepted
                server.quit()
    except smtplib.SMTPNotSupportedError:
        said = "the mail server offers no such login or TLS: see `tls`"
        return SendProblem(sentence=said, final=True)
    except smtplib.SMTPRecipientsRefused as error:
        codes = sorted({code for code, _ in error.recipients.values()})
        said = f"the mail server refuses the recipients ({', '.join(map(str, codes))})"
        return SendProblem(sentence=said, final=min(codes, default=0) >= LASTING)
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error
        words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        said = f"the mail server says {error.smtp_code}: {' '.join(words.split())}"
        return SendProblem(sentence=said, final=error.smtp_code >= LASTING)
    except ssl.SSLError as error:
        return SendProblem(sentence=f"no TLS with {receiver.host}:{port}: {error.reason or error}")
    except (OSError, smtplib.SMTPException) as error:
        why = getattr(error, "strerror", None) or error or type(error).__name__
        said = f"{receiver.host}:{port} can't be used: {why}"
        return SendProblem(sentence=" ".join(said.split()))
    return None


def connect_to_server(receiver: Receiver, port: int) -> smtplib.SMTP:
    name = socket.gethostname()
    if receiver.tls == IMPLICIT:
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(
            receiver.host, port, local_hostname=name, timeout=TIMEOUT_S, context=context
        )
    server = smtplib.SMTP(receiver.host, port, local_hostname=name, timeout=TIMEOUT_S)
    if receiver.tls != PLAIN_TEXT:
        try:
            server.starttls(context=ssl.create_default_context())
        except (OSError, smtplib.SMTPException):
            server.close()
            raise
    return server


def mail_of(receiver: Receiver, message: Message) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = f"[herd] {' '.join(message.title.split())}"
    mail["From"] = receiver.sender or receiver.to[0]
    mail["To"] = ", ".join(receiver.to)
    mail["Date"] = formatdate(message.at)
    mail["Message-ID"] = f"<{message.id}@tpuherd>"
    mail.set_content(plain_text(message).encode("utf-8", "replace").decode())
    return mail
