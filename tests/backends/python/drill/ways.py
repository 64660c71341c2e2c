"""Ways to end a process from inside a model, or to harm it. The model of the drill imports them."""

import ctypes
import mmap
import os
import platform
import resource
import signal
import socket
import stat
import sys
import tempfile
import threading
import time

import numpy as np

C = ctypes.CDLL(None)
IS_X86 = platform.machine() == "x86_64"
LONG_S = 1000
BUSY_S = 0.5


class Unusual(BaseException):
    pass


class Deep:
    def __repr__(self):
        return repr(self)


def write_to_null():
    ctypes.memset(8, 1, 1)


def divide_by_zero():
    C.div(1, 0) if IS_X86 else signal.raise_signal(signal.SIGFPE)


def run_no_instruction():
    if not IS_X86:
        signal.raise_signal(signal.SIGILL)
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x0b")
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()


def read_beyond_a_file():
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        pages = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        pages.read(1)


def overflow_the_stack():
    sys.setrecursionlimit(10**9)
    repr(Deep())


def corrupt_the_heap():
    block = ctypes.create_string_buffer(64)
    C.free(ctypes.c_void_p(ctypes.addressof(block) + 8))


def exceed_the_memory():
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20), resource.RLIM_INFINITY))
    try:
        kept = []
        while True:
            kept.append(np.ones(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)


def abort_without_memory():
    try:
        exceed_the_memory()
    except MemoryError:
        os.abort()


def exit_from_c():
    C.exit(3)


def exit_from_another_thread():
    threading.Thread(target=C.exit, args=(0,)).start()
    time.sleep(LONG_S)


def exit_while_threads_go_on():
    until_s = time.monotonic() + BUSY_S

    def work():
        while time.monotonic() < until_s:
            sum(range(1000))

    for _ in range(3):
        threading.Thread(target=work).start()
    sys.exit(1)


def hang():
    while True:
        pass


def hang_with_the_lock():
    ctypes.PyDLL(None).sleep(LONG_S)


def the_socket():
    """Return the descriptor of the socket to the server."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.type == socket.SOCK_SEQPACKET:
                    return int(name)
        except OSError:
            continue
    msg = "there is no socket to the server"
    raise RuntimeError(msg)


def send_garbage():
    os.write(the_socket(), b"\xff" * 500)
    time.sleep(LONG_S)


def send_half_a_packet():
    from inferd_worker import packet

    os.write(the_socket(), packet.HEADER.pack(packet.RESULT, 9999, 0, 9999, 1, 1, 2)[:20])
    time.sleep(LONG_S)


def answer_with(outputs, data=b""):
    """Answer the execution under way, wrongly: every number that it can have is tried."""
    from inferd_worker import packet

    text = b"[[],[[0,%s,null,null,true,1]]]" % outputs
    start = -(-len(text) // packet.ALIGN) * packet.ALIGN
    payload = text.ljust(start, b" ") + data if data else text
    for number in range(1, 1000):
        header = packet.HEADER.pack(
            packet.RESULT, len(text), packet.INLINE, len(payload), number, 1, 2
        )
        os.write(the_socket(), header + payload)
    time.sleep(LONG_S)


def answer_with_bytes_of_nobody():
    answer_with(b'[["OUT","INT32",[4096],1048576,16384]]')


def answer_with_a_wrong_size():
    answer_with(b'[["OUT","INT32",[4],0,4]]', bytes(64))


def answer_with_a_wrong_block():
    answer_with(b'[["OUT","INT32",[4],0,16,64]]')


def log_without_end():
    import triton_python_backend_utils as pb_utils

    while True:
        pb_utils.Logger.log_info("again")


def print_and_abort():
    for _ in range(50_000):
        sys.stdout.write("lines and lines and lines\n")
    os.abort()


def close_everything():
    os.closerange(3, 4096)
    time.sleep(LONG_S)


def leave_a_child():
    if not os.fork():
        os.setsid()
        time.sleep(LONG_S)
    os._exit(1)


def raise_unusual():
    msg = "what nobody expects"
    raise Unusual(msg)


def raise_interrupt():
    raise KeyboardInterrupt


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def signal_storm():
    def send():
        while True:
            os.kill(os.getpid(), signal.SIGUSR2)

    signal.signal(signal.SIGUSR2, lambda *_: None)
    threading.Thread(target=send, daemon=True).start()
    time.sleep(0.1)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    time.sleep(LONG_S)


def alarm():
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    time.sleep(LONG_S)


def become_another_program():
    os.execv("/bin/sleep", ["sleep", str(LONG_S)])


def fill_the_arena():
    return np.zeros(80 << 20, np.int32)


WAYS = {
    "abort": os.abort,
    "SIGSEGV, a write to null": write_to_null,
    "SIGFPE, a division by zero": divide_by_zero,
    "SIGILL, no instruction": run_no_instruction,
    "SIGBUS, a read beyond a file": read_beyond_a_file,
    "a stack that overflows": overflow_the_stack,
    "a heap that is corrupted": corrupt_the_heap,
    "SIGKILL to itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM to itself": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "an abort without memory": abort_without_memory,
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "exit() in C": exit_from_c,
    "exit() in C on another thread": exit_from_another_thread,
    "a hang": hang,
    "a hang that holds the lock": hang_with_the_lock,
    "garbage for an answer": send_garbage,
    "half a packet": send_half_a_packet,
    "an answer of bytes that are not there": answer_with_bytes_of_nobody,
    "an answer of a wrong size": answer_with_a_wrong_size,
    "an answer in a block that is not there": answer_with_a_wrong_block,
    "a log without end": log_without_end,
    "a flood of lines, then an abort": print_and_abort,
    "all descriptors closed": close_everything,
    "a child that keeps the socket": leave_a_child,
    "SIGSTOP to itself": stop,
    "a storm of signals": signal_storm,
    "alarms": alarm,
    "another program": become_another_program,
}
"""These end the process, or it is ended for them."""

FAILURES = {
    "sys.exit()": lambda: sys.exit(1),
    "sys.exit() while threads go on": exit_while_threads_go_on,
    "a BaseException": raise_unusual,
    "a KeyboardInterrupt": raise_interrupt,
    "a limit on memory that is reached": exceed_the_memory,
    "more than the arena holds": fill_the_arena,
}
"""These only fail the request."""
