"""The states of an HTTP/1.1 connection, and what makes it go from one to another.

      STALLED <--STALLS/FLOWS--> HEAD <--------------ANSWERED--------------+
                                  |                                         |
           +----------+-----------+----------WAITS--> ANSWERING --ANSWERED--+
       BODY_COMES  CHUNKS_COME    |                      |                  |
           v          v           |                   STREAMS               |
          BODY      CHUNKS        |                      v                  |
           |          |           +--STREAMS--> STREAMING -----ANSWERED-----+
           +----------+--- ANSWERED, WAITS or STREAMS, as from HEAD

From every state CLOSES leads to CLOSED, and so does ENDS from those that wait for the client: HEAD,
BODY and CHUNKS. What is not in the table must not happen. ANSWERED leads to STALLED instead of HEAD
while the client does not read: that only the writer knows.
"""

from enum import Enum
from typing import Final


class HttpState(Enum):
    """What a connection is about to do with what its client sends."""

    HEAD = "read the next request, or the rest of its head"
    BODY = "receive the rest of a body of known length into its own memory"
    CHUNKS = "read the rest of a body in chunks"
    ANSWERING = "keep it until a coroutine has answered the latest request"
    STREAMING = "keep it until all pieces of an answer of unknown length have been sent"
    STALLED = "keep it until the client reads its answers"
    CLOSED = "drop it until the connection is gone"


class HttpEvent(Enum):
    """What happens to a connection."""

    BODY_COMES = "a head announces a body, not all of which is there"
    CHUNKS_COME = "a head announces a body in chunks"
    WAITS = "a request cannot be answered at once"
    STREAMS = "an answer has begun whose length is not known"
    ANSWERED = "an answer has been given to the writer"
    STALLS = "the client does not read: the transport holds as much as it may"
    FLOWS = "the client reads again"
    ENDS = "the client sends no more, and nothing that it has sent can be answered without waiting"
    CLOSES = "it was refused or given its last answer, it is cut, or the client has gone"


# Not by their enumerations: there, compiled code would look the members up by name each time. With
# their types: without, mypy would not see that a call has changed the state it was compared with.
HEAD: Final[HttpState] = HttpState.HEAD
BODY: Final[HttpState] = HttpState.BODY
CHUNKS: Final[HttpState] = HttpState.CHUNKS
ANSWERING: Final[HttpState] = HttpState.ANSWERING
STREAMING: Final[HttpState] = HttpState.STREAMING
STALLED: Final[HttpState] = HttpState.STALLED
CLOSED: Final[HttpState] = HttpState.CLOSED

NEXT: Final[dict[tuple[HttpState, HttpEvent], HttpState]] = {
    (HEAD, HttpEvent.BODY_COMES): BODY,
    (HEAD, HttpEvent.CHUNKS_COME): CHUNKS,
    (HEAD, HttpEvent.STALLS): STALLED,
    (STALLED, HttpEvent.FLOWS): HEAD,
    (STALLED, HttpEvent.ANSWERED): STALLED,  # the answer itself made it stall
    **{(state, HttpEvent.WAITS): ANSWERING for state in (HEAD, BODY, CHUNKS)},
    **{(state, HttpEvent.STREAMS): STREAMING for state in (HEAD, BODY, CHUNKS, ANSWERING)},
    **{(state, HttpEvent.ANSWERED): HEAD for state in (HEAD, BODY, CHUNKS, ANSWERING, STREAMING)},
    # The transport may say so at any time; the writer remembers.
    **{(state, HttpEvent.STALLS): state for state in HttpState if state is not HttpState.HEAD},
    **{(state, HttpEvent.FLOWS): state for state in HttpState if state is not HttpState.STALLED},
    **{(state, HttpEvent.ENDS): CLOSED for state in (HEAD, BODY, CHUNKS)},
    **{(state, HttpEvent.ENDS): state for state in (ANSWERING, STREAMING, STALLED)},
    **{(state, HttpEvent.CLOSES): CLOSED for state in HttpState},
    **{(HttpState.CLOSED, event): CLOSED for event in HttpEvent},
}
"""The state that follows a state, by what happens in it."""
