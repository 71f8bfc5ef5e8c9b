"""A run rests at the gate while it is shut, and hears that it should stop."""

from __future__ import annotations

import signal
from threading import Event, Thread, get_ident

import pytest

from gradviz.loop.gate import Gate


def resting(gate: Gate) -> Thread:
    thread = Thread(target=gate.rest)
    thread.start()
    return thread


@pytest.mark.parametrize("let_go", [Gate.open, Gate.stop])
def test_who_closes_it_waits_until_the_run_rests_and_it_rests_until_it_is_let_go(let_go):
    gate = Gate()
    gate.close()
    thread = resting(gate)
    gate.wait_until_it_rests()
    assert thread.is_alive()
    let_go(gate)
    thread.join(10)
    assert not thread.is_alive()
    assert gate.asked == gate.stops == (let_go is Gate.stop)


def test_closed_again_at_once_it_is_waited_for_anew():
    gate = Gate()
    gate.close()
    thread = resting(gate)
    gate.wait_until_it_rests()
    for _ in range(100):
        gate.open()
        gate.close()
        if not thread.is_alive():
            thread = resting(gate)
    thread.join(0.001)
    gate.open()
    thread.join(10)
    assert not thread.is_alive()


def test_nobody_waits_for_a_run_that_is_over_or_that_stops():
    gate = Gate()
    gate.close()
    gate.leave()
    gate.wait_until_it_rests()
    gate = Gate()
    gate.stop()
    gate.close()
    assert not gate.shut
    gate.wait_until_it_rests()


def test_ctrl_c_is_heard_whichever_thread_the_system_gives_it_to():
    gate, over, opened = Gate(), Event(), []
    gate.close()

    def interrupted():
        gate.wait_until_it_rests()
        signal.pthread_kill(get_ident(), signal.SIGINT)
        if not over.wait(5):
            opened.append(True)
            gate.open()

    thread = Thread(target=interrupted)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            gate.rest()
    finally:
        over.set()
        thread.join()
    assert not opened


def test_what_is_put_there_is_done_by_the_run_in_order_and_once():
    gate, done = Gate(), []
    gate.put(lambda is_running: done.append(("a", is_running)))
    gate.put(lambda is_running: done.append(("b", is_running)))
    assert gate.asked
    assert done == []
    gate.do_tasks()
    gate.do_tasks()
    assert done == [("a", True), ("b", True)]
    assert not gate.asked
    gate.close()
    gate.put(lambda is_running: done.append(("c", is_running)))
    gate.open()
    assert gate.asked, "it is open, and there is something to do"
    gate.stop()
    gate.do_tasks()
    assert gate.asked


def test_a_run_that_rests_wakes_for_what_is_put_there():
    gate, done = Gate(), Event()
    gate.close()

    def run():
        while gate.shut:
            gate.rest()
            gate.do_tasks()

    thread = Thread(target=run)
    thread.start()
    gate.wait_until_it_rests()
    gate.put(lambda is_running: done.set())
    assert done.wait(10)
    assert gate.shut
    gate.open()
    thread.join(10)
    assert not thread.is_alive()


def test_a_run_that_is_over_does_nothing_more_and_says_so():
    gate, done = Gate(), []
    gate.put(lambda is_running: done.append(is_running))
    gate.leave()
    gate.put(lambda is_running: done.append(is_running))
    assert done == [False, False]


def test_shut_it_lets_as_many_iterations_pass_as_it_is_told():
    gate, passed = Gate(), []
    gate.close()

    def run():
        while not gate.stops:
            while gate.holds:
                gate.rest()
            if gate.stops:
                return
            passed.append(True)
            gate.took_step()

    thread = Thread(target=run)
    thread.start()
    for n in (1, 2, 3):
        gate.step()
        gate.wait_until_it_rests()
        assert len(passed) == n
        assert gate.asked
    gate.stop()
    thread.join(10)
    assert not thread.is_alive()
    gate.step()
    assert gate.steps == 0, "it is not shut"
