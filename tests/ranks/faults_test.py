#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that fail in every way we know: each rank ends, in time, with a message that names the rank and the cause.

usage: faults_test.py PROGRAM [NAME]     PROGRAM: toller_rank_program; NAME: only cases whose name holds it"""
import os
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from support import Processes, free_port, hand_written

PROGRAM = os.path.abspath(sys.argv[1])
TIMEOUT = 12      # what ranks are told; they also need a few seconds to find out who is to blame
ENDED_IN = 45     # seconds after which a rank counts as hanging, on a loaded machine
CASES = []


def case(function):
    CASES.append(function)
    return function


def start(running, ranks, *arguments, port=None, timeout=TIMEOUT, variables=None):
    for rank, known in enumerate(variables or hand_written(ranks, port)):
        running.start([PROGRAM, "colbert", "--timeout", timeout, *arguments], known)


def expect(ended, numbers, *patterns):
    """Each of these processes ended by itself with status 1 and one error line with all the words."""
    for n in numbers:
        e = ended[n]
        assert e.code == 1, f"rank {n} ended with {e.code} after {e.seconds:.0f} s: {e.err}"
        last = e.err.strip().split("\n")[-1]
        for pattern in patterns:
            assert re.search(pattern, last), f"rank {n} says {last!r}, expected {pattern!r}"


def fails(fault, blamed, *patterns, ranks=3, others=None):
    """A case in which rank `blamed` does something and the others name it."""
    with Processes() as running:
        start(running, ranks, "--fault", fault)
        ended = running.wait(ENDED_IN)
    expect(ended, [n for n in range(ranks) if n != blamed] if others is None else others, *patterns)
    return ended


@case
def a_rank_throws_before_a_step():
    ended = fails("1:throw_before:2", 1, r"\[R620\] rank 1 \(.*pid \d+\) stopped: out of luck before the step")
    expect(ended, [1], "^rank 1: out of luck before the step$")


@case
def a_rank_throws_inside_a_step():
    ended = fails("1:throw_inside:2", 1, r"\[R620\] rank 1 \(.*\) stopped: out of luck in the forward pass")
    expect(ended, [1], "^rank 1: out of luck in the forward pass$")


@case
def rank_0_throws_inside_a_step():
    fails("0:throw_inside:3", 0, r"\[R620\] rank 0 \(.*\) stopped: out of luck in the forward pass")


@case
def a_rank_throws_between_gather_and_backward():
    fails("2:throw_loss:2", 2, r"\[R620\] rank 2 \(.*\) stopped: out of luck in the loss")


@case
def a_rank_throws_after_the_last_collective():
    with Processes() as running:
        start(running, 3, "--fault", "1:after_fit:0")
        ended = running.wait(ENDED_IN)
    assert [e.code for e in ended] == [0, 1, 0], [e.err for e in ended]
    expect(ended, [1], "out of luck after the fit")


@case
def a_rank_is_killed_between_steps():
    ended = fails("1:kill:2", 1, r"\[R620\] rank 1 \(.*pid \d+\) shows no sign of life")
    assert ended[1].code == -signal.SIGKILL


@case
def a_rank_is_killed_inside_a_step():
    fails("2:kill_inside:2", 2, r"\[R620\] rank 2 \(.*\) shows no sign of life")


@case
def rank_0_is_killed():
    fails("0:kill_inside:2", 0, r"\[R620\] the store at .* is gone: rank 0 \(.*pid \d+\)")


@case
def a_rank_leaves_without_a_word():
    fails("1:exit:2", 1, r"\[R620\] rank 1 \(.*\) shows no sign of life")


@case
def a_rank_is_stopped_between_steps():
    with Processes() as running:
        start(running, 3, "--fault", "1:stop:2")
        ended = running.wait(ENDED_IN, but=[1])   # leaving kills the stopped one, as a launcher does
    expect(ended, [0, 2], r"\[R620\] rank 1 \(.*\) shows no sign of life for \d+ s: killed, stopped or cut off")


@case
def a_rank_that_was_stopped_goes_on_when_the_others_have_ended():
    for fault in ("1:stop:2", "1:stop_inside:2"):
        with Processes() as running:
            start(running, 3, "--fault", fault)
            end = time.monotonic() + ENDED_IN
            while (running.running(0) or running.running(2)) and time.monotonic() < end:
                time.sleep(0.1)
            running.send(1, signal.SIGCONT)
            ended = running.wait(ENDED_IN)
        expect(ended, [0, 1, 2], r"\[R620\] ")


@case
def a_rank_is_stopped_inside_a_step():
    with Processes() as running:
        start(running, 3, "--fault", "2:stop_inside:2")
        ended = running.wait(ENDED_IN, but=[2])
    expect(ended, [0, 1], r"\[R620\] rank 2 \(.*\) shows no sign of life")


@case
def the_rank_that_holds_the_store_is_stopped():
    with Processes() as running:
        start(running, 3, "--fault", "0:stop:2")
        ended = running.wait(ENDED_IN, but=[0])
    expect(ended, [1, 2], r"\[R620\] the store at .* shows no sign of life: rank 0 \(")


@case
def different_parameter_shapes():
    fails("1:other_shape:0", None, r"\[R618\] the model differs between ranks: rank 0 \(.*\) has head.0.linear.weight of shape 16 48 .*"
          r"rank 1 \(.*\) has head.0.linear.weight of shape 8 48")


@case
def different_datasets():
    fails("1:other_data:0", None, r"\[R618\] the data differs between ranks: rank 0 \(.*\) has row 39 with texts of hash \d+, rank 1 \(")


@case
def datasets_of_different_length():
    fails("2:other_size:0", None, r"\[R618\] .* rank 0 \(.*\) has rows 40, rank 2 \(.*\) has rows 39")


@case
def different_settings():
    fails("1:other_seed:0", None, r"\[R618\] the run differs between ranks: rank 0 \(.*\) has seed=7, rank 1 \(.*\) has seed=1")


@case
def a_rank_without_rows():
    ended = fails("1:no_rows:0", 1, r"\[R620\] rank 1 \(.*\) stopped: \[R121\] the data have 0 rows")
    expect(ended, [1], r"\[R121\] the data have 0 rows")


@case
def a_rank_meets_nan():
    fails("1:nan:2", None, r"\[R501\] the loss of step 2 is nan on rank 1 \(.*\) \(first row \d+ of the data\); the weights are those before it")


@case
def different_world_sizes():
    port = free_port()
    variables = hand_written(2, port) + [{**hand_written(3, port)[2]}]
    with Processes() as running:
        start(running, 3, variables=variables[:2])
        running.start([PROGRAM, "colbert", "--timeout", TIMEOUT], variables[2])
        ended = running.wait(ENDED_IN)
    told_late = [n for n in range(3) if "R615" in ended[n].err or "R616" in ended[n].err]
    assert 2 in told_late, [e.err for e in ended]   # the odd one out, whether it came first, between or last
    assert all(e.code is not None for e in ended)


@case
def two_ranks_disagree_on_the_number_of_ranks():
    port = free_port()
    with Processes() as running:
        running.start([PROGRAM, "colbert", "--timeout", TIMEOUT], hand_written(3, port)[0])
        assert running.wait_for_text(0, "", 1)
        running.start([PROGRAM, "colbert", "--timeout", TIMEOUT], hand_written(2, port)[1])
        ended = running.wait(ENDED_IN)
    expect(ended, [0, 1], r"R615\] rank \d \(.*\) was told of \d ranks, the run has \d ranks, as rank \d \(.*\) says")


@case
def the_same_rank_twice():
    port = free_port()
    variables = hand_written(3, port)
    with Processes() as running:
        start(running, 3, variables=[variables[0], variables[1], variables[1]])
        ended = running.wait(ENDED_IN)
    expect(ended, [0, 1, 2], r"R614\] two processes are rank 1 of 3: .*pid \d+; and .*pid \d+")


@case
def a_process_too_many():
    port = free_port()
    with Processes() as running:
        start(running, 2, "--steps", 400, "--rows", 400, port=port)
        time.sleep(5)
        running.start([PROGRAM, "colbert", "--timeout", TIMEOUT], hand_written(2, port)[1])
        time.sleep(4)
        assert running.running(0) and running.running(1), running.text(0)   # it does not harm the run
        running.send(0, signal.SIGTERM)
        ended = running.wait(ENDED_IN)
    expect(ended, [2], r"\[R616\] rank 1 \(.*\) came to a run at .* that has begun without it")
    assert [e.code for e in ended[:2]] == [0, 0], [e.err for e in ended]


@case
def a_wrong_port():
    variables = hand_written(2)
    variables[1]["MASTER_PORT"] = free_port()
    with Processes() as running:
        start(running, 2, variables=variables, timeout=6)
        ended = running.wait(ENDED_IN)
    expect(ended, [0], r"\[R613\] not all of 2 ranks came to 127.0.0.1:\d+ within 6 s; here: 0 \(.*\); missing: 1")
    expect(ended, [1], r"\[R611\] rank 1 did not reach rank 0's store at 127.0.0.1:\d+ within 6 s: Connection refused")


@case
def a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        with Processes() as running:
            start(running, 2, port=taken.getsockname()[1], timeout=6)
            ended = running.wait(ENDED_IN)
    expect(ended, [0], r"\[R610\] rank 0 cannot open the store at .*: the port is taken: choose another MASTER_PORT")
    expect(ended, [1], r"\[R611\] rank 1 did not reach rank 0's store")


@case
def a_rank_that_never_starts():
    variables = hand_written(4)
    with Processes() as running:
        start(running, 3, variables=[variables[0], variables[1], variables[3]], timeout=6)
        ended = running.wait(ENDED_IN)
    expect(ended, [0, 1, 2], r"R613\] not all of 4 ranks came to 127.0.0.1:\d+ within 6 s; here: 0 \(.*\), 1 \(.*\), 3 \(.*\); missing: 2")


@case
def rank_0_is_stopped_while_ranks_meet():
    variables = hand_written(3)
    with Processes() as running:
        start(running, 2, variables=variables[:2], timeout=20)
        assert running.wait_for_text(0, "waiting for 2 of the 3 ranks", 30), running.text(0)
        running.send(0, signal.SIGSTOP)
        ended = running.wait(ENDED_IN, but=[0])
    expect(ended, [1], r"\[R620\] the store at .* shows no sign of life: rank 0 or the agent that holds it is stopped")


@case
def very_many_ranks_that_never_start():
    variables = [{**known, "WORLD_SIZE": 2_000_000_000} for known in hand_written(2)]
    for known in variables:
        del known["LOCAL_WORLD_SIZE"]
    with Processes() as running:
        start(running, 2, variables=variables, timeout=6)
        ended = running.wait(ENDED_IN)
    expect(ended, [0, 1], r"R613\] not all of 2000000000 ranks came to 127.0.0.1:\d+ within 6 s; here: 0 \(.*\), 1 \(.*\); missing: 2, 3, .*, \.\.\.$")


@case
def an_address_that_nobody_knows():
    variables = hand_written(2, address="nosuch.invalid")
    with Processes() as running:
        start(running, 2, variables=variables, timeout=6)
        ended = running.wait(ENDED_IN)
    expect(ended, [0], r"\[R610\] rank 0 cannot open the store at nosuch.invalid:\d+: \w+")
    expect(ended, [1], r"\[R611\] rank 1 did not reach rank 0's store at nosuch.invalid:\d+ within 6 s: \w+")


@case
def variables_that_contradict_each_other():
    with Processes() as running:
        for wrong in ({"RANK": 5}, {"RANK": "x"}, {"WORLD_SIZE": 0}, {"LOCAL_RANK": 7}):
            running.start([PROGRAM, "colbert"], {**hand_written(2)[1], **wrong})
        ended = running.wait(ENDED_IN)
    expect(ended, range(4), r"^rank 0: \[R60[12]\] ")


@case
def a_rank_alone_without_the_others():
    with Processes() as running:
        start(running, 1, variables=[hand_written(2)[1]], timeout=6)
        ended = running.wait(ENDED_IN)
    expect(ended, [0], r"\[R611\] rank 1 did not reach rank 0's store at .*: Connection refused")


@case
def a_rank_that_comes_late_is_waited_for():
    late = int(os.environ.get("TOLLER_LATE_SECONDS", "20"))
    variables = hand_written(3)
    with Processes() as running:
        start(running, 2, variables=variables[:2], timeout=late + 60)
        time.sleep(late)
        running.start([PROGRAM, "colbert", "--timeout", late + 60], variables[2])
        ended = running.wait(late + ENDED_IN)
    assert [e.code for e in ended] == [0, 0, 0], [e.err for e in ended]
    assert "waiting for 2 of the 3 ranks" in ended[0].err, ended[0].err


@case
def a_rank_that_is_late_within_the_fit_is_waited_for():
    with Processes() as running:
        start(running, 3, "--fault", "1:late:20", timeout=60)
        ended = running.wait(20 + ENDED_IN)
    assert [e.code for e in ended] == [0, 0, 0], [e.err for e in ended]
    assert "waiting for rank 1 (" in ended[0].err, ended[0].err


@case
def saving_longer_than_the_timeout_kills_nothing():
    with Processes() as running:
        start(running, 3, "--fault", "0:busy:2", timeout=6)   # sleeps 20 s in a callback
        ended = running.wait(20 + ENDED_IN)
    assert [e.code for e in ended] == [0, 0, 0], [e.err for e in ended]


@case
def a_rank_that_hangs_inside_a_step_is_named():
    with Processes() as running:
        start(running, 3, "--fault", "1:hang_inside:2", timeout=6)
        ended = running.wait(ENDED_IN, but=[1])
    expect(ended, [0, 2], r"\[R620\] no sign of progress from rank 1 \(.*\) \(step 2\)")


@case
def a_rank_whose_data_hang_is_named():
    with Processes() as running:
        start(running, 3, "--fault", "1:hang:2", timeout=6)
        ended = running.wait(ENDED_IN, but=[1])
    expect(ended, [0, 2], r"\[R620\] no sign of progress for 6 s from rank 1 \(.*\) \(the data of step \d+\)")


def signalled(sig, targets):
    with Processes() as running:
        start(running, 3, "--steps", 5000, "--rows", 400, "--log")
        for n in range(3):
            assert running.wait_for_text(n, "step 3\n", 60), running.text(n)
        for n in targets:
            running.send(n, sig)
        ended = running.wait(ENDED_IN)
    reasons = set()
    for n, e in enumerate(ended):
        assert e.code == 0, f"rank {n} ended with {e.code}: {e.err}"
        reasons.add(e.err.strip().split("\n")[-1].split(": ", 1)[1])
    assert len(reasons) == 1, reasons   # all stopped at the same step, and know why
    name = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}[sig]
    assert re.search(rf"\d+ steps, stopped by {name} on rank \d \(", reasons.pop())


@case
def sigterm_to_one_rank():
    signalled(signal.SIGTERM, [1])


@case
def sigterm_to_all_ranks():
    signalled(signal.SIGTERM, [0, 1, 2])


@case
def ctrl_c_to_one_rank():
    signalled(signal.SIGINT, [2])


@case
def ctrl_c_to_all_ranks():
    signalled(signal.SIGINT, [0, 1, 2])


@case
def the_agent_that_holds_the_store_dies():
    """torchrun's agent holds the store; here another process of ours does, and is killed."""
    port = free_port()
    with Processes() as running:
        holder = running.start([PROGRAM, "hold-store", port])
        assert running.wait_for_text(holder, "holding", 30), running.text(holder)
        agent = {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        for known in hand_written(2, port):
            running.start([PROGRAM, "colbert", "--timeout", TIMEOUT, "--steps", 5000, "--rows", 400, "--log"], {**known, **agent})
        for n in (1, 2):
            assert running.wait_for_text(n, "step 3\n", 60), running.text(n)
        running.send(holder, signal.SIGKILL)
        ended = running.wait(ENDED_IN)
    expect(ended, [1, 2], r"\[R620\] the store at .* is gone: .*the agent that holds it ended")


def run(function):
    began = time.monotonic()
    try:
        function()
        return function, None, time.monotonic() - began
    except Exception as error:   # noqa: BLE001: every failure is reported
        return function, f"{type(error).__name__}: {error}", time.monotonic() - began


if __name__ == "__main__":
    chosen = [c for c in CASES if len(sys.argv) < 3 or sys.argv[2] in c.__name__]
    failed = 0
    with ThreadPoolExecutor(3) as pool:
        for function, why, seconds in pool.map(run, chosen):
            print(f"{'ok  ' if why is None else 'FAIL'} {seconds:5.1f} s  {function.__name__.replace('_', ' ')}" + (f"\n     {why}" if why else ""),
                  flush=True)
            failed += why is not None
    print(f"{len(chosen)} cases, {failed} failed")
    sys.exit(1 if failed or not chosen else 0)
