"""The first Ctrl-C waits, the second acts, and the handler before comes back."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest

from gradviz.loop.interrupt import InterruptGuard


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_held_back_and_every_later_one_raises():
    before = signal.getsignal(signal.SIGINT)
    guard = InterruptGuard()
    with guard:
        assert not guard.requested
        press()
        assert guard.requested
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                press()
    assert signal.getsignal(signal.SIGINT) is before


def test_while_it_is_held_a_second_one_waits_too():
    with InterruptGuard() as guard:
        press()
        with guard.held:
            with guard.held:
                press()
            press()
        assert guard.requested
        assert guard.insisted
        with pytest.raises(KeyboardInterrupt):
            press()


def test_another_handler_than_python_s_own_comes_back():
    mine, heard = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with InterruptGuard():
            press()
        press()
        assert heard == [1]
    finally:
        signal.signal(signal.SIGINT, mine)


def test_a_forked_worker_does_not_hold_interrupts_back():
    def child() -> None:
        try:
            press()
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(0)

    with InterruptGuard():
        if not (process := os.fork()):
            child()
        _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_in_another_thread_it_does_nothing():
    guards = []

    def run() -> None:
        with InterruptGuard() as guard:
            guards.append(guard.requested)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert guards == [False]


def test_one_that_acts_at_once_and_is_ignored_is_not_lost():
    with InterruptGuard() as guard, guard.at_once:
        with contextlib.suppress(KeyboardInterrupt):  # as Python does in what it calls when it forks
            press()
        assert guard.requested
