"""Which slow requests give up their slots; simulated time."""

from __future__ import annotations

from dataclasses import dataclass

from downloader.core.host import Host
from downloader.core.preemption import WORTH, Held, Preemption, Untaken

TICK = 0.25
SLOTS = 8


@dataclass(eq=False)
class Job:
    host: Host
    attempts: int = 0
    cut_off: int = 0
    demotions: int = 0
    stranded: int = 0


class Slots:
    """Slots of which some hold slow requests, while the others finish ``rate`` files in each tick."""

    def __init__(self, slow: int, *, rate: int = 100, speed: int = 0, slots: int = SLOTS) -> None:
        self.preemption = Preemption()
        self.now, self.finished, self.rate, self.slots = 100.0, 0, rate, slots
        self.host = Host("h", slots, slots, active=slots, answered=100.0 if rate else 0.0)
        self.held = [Held(n, Job(self.host), 100.0, 0) for n in range(slow)]
        self.speed = speed

    def tick(self, *, waiting: bool = True) -> list[Held]:
        self.now += TICK
        self.finished += self.rate
        if self.rate:
            self.host.answered = self.now
        self.held = [each._replace(received=int((self.now - 100.0) * self.speed)) for each in self.held]
        chosen = self.preemption.observe(
            self.now, self.held, finished=self.finished, slots=self.slots, waiting=waiting
        )
        for each in chosen:
            self.held = [other for other in self.held if other.key != each.key]
        return chosen

    def run(self, seconds: float, *, waiting: bool = True) -> int:
        return sum(len(self.tick(waiting=waiting)) for _ in range(int(seconds / TICK)))


def test_tarpits_keep_half_of_the_slots() -> None:
    slots = Slots(7)
    assert slots.run(2) == 3
    assert slots.run(600) == 0


def test_nothing_is_preempted_while_nothing_waits() -> None:
    assert Slots(8).run(600, waiting=False) == 0


def test_file_that_makes_progress_keeps_its_slot() -> None:
    assert Slots(8, speed=50_000).run(60) == 0


def test_the_slowest_is_preempted_first() -> None:
    """Of two that have received a little and one that has received nothing, which is not the latest."""
    preemption, host = Preemption(), Host("h", 2, 2, active=3)
    held = [Held(n, Job(host), 100.0 + n / 100, received) for n, received in enumerate((900, 0, 900))]
    chosen: list[Held] = []
    for tick in range(1, 5):
        host.answered = 100.0 + tick * TICK
        chosen = chosen or preemption.observe(host.answered, held, finished=tick, slots=4, waiting=True)
    assert [each.key for each in chosen] == [1]


def test_time_of_a_demoted_request_grows_until_it_can_end() -> None:
    """A file that takes 20 s is not begun again for ever."""
    preemption, job = Preemption(), Job(Host("h", 1, 1))
    allotments = []
    for job.demotions in range(4):
        allotments.append(preemption.allotment(job))
    assert allotments[-1] > 20 > allotments[1]
    assert sum(allotments[:-1]) < allotments[-1] / 2


def test_few_are_lost_while_nothing_ends_at_all() -> None:
    """The network, or the server, is held up for two seconds."""
    assert Slots(32, rate=0, slots=32).run(1.5) == 0
    assert 0 < Slots(32, rate=0, slots=32).run(3) <= 2


def test_few_are_lost_where_a_server_that_was_fast_is_held_up() -> None:
    """It has answered just before, which says nothing about the requests that it got since."""
    slots = Slots(0, slots=32)
    slots.run(5)
    slots.rate = 0
    slots.held = [Held(n, Job(slots.host), slots.now, 0) for n in range(32)]
    assert slots.run(1.5) == 0
    assert 0 < slots.run(1.5) <= 2


def test_slow_server_is_known_by_responses_that_ended() -> None:
    """Each response takes 5 s. When the first have come, those of others are waited for."""
    slots = Slots(8, rate=0)
    slots.run(4.75)
    lost = 8 - len(slots.held)
    # The first response came; the connection goes on with another request.
    slots.held[0] = slots.held[0]._replace(since=slots.now)
    assert slots.run(5) == 0
    assert lost <= 3


def test_response_that_others_wait_behind_is_preempted() -> None:
    slots = Slots(1)
    slots.held = [slots.held[0]._replace(blocks=True)]
    assert slots.run(1, waiting=False) == 1


def test_process_that_was_held_up_judges_nobody() -> None:
    slots = Slots(8)
    slots.tick()
    slots.now += 60.0
    assert slots.tick() == []


def test_one_host_of_many_gives_its_own_slots_to_its_own_files() -> None:
    slots = Slots(8)
    slots.host.queue = [Job(slots.host)]  # type: ignore[list-item]
    assert slots.run(3, waiting=False) == 4


def overdue(slots: Slots, seconds: float) -> int:
    found = 0
    for _ in range(int(seconds / TICK)):
        slots.tick(waiting=False)
        found += len(slots.preemption.overdue())
    return found


def test_slow_requests_whose_files_are_elsewhere() -> None:
    """They are told of once in an allotment, and end though nothing waits for their slots."""
    slots = Slots(2)
    assert overdue(slots, 1.75) == 0
    assert overdue(slots, 1.75) == 2
    assert overdue(slots, 2) == 2
    assert slots.preemption.leave(slots.held) == slots.held


def test_what_was_received_is_not_thrown_away_at_once() -> None:
    """A request that has received for ten seconds is not overdue before it was slow for as long."""
    slots = Slots(1, speed=WORTH * 8)
    assert overdue(slots, 10) == 0
    slots.speed = 0
    received = slots.held[0].received
    slots.preemption.observe(slots.now, slots.held, finished=slots.finished, slots=SLOTS, waiting=False)

    def found(seconds: float) -> int:
        count = 0
        for _ in range(int(seconds / TICK)):
            slots.now += TICK
            held = [slots.held[0]._replace(received=received)]
            slots.preemption.observe(slots.now, held, finished=0, slots=SLOTS, waiting=False)
            count += len(slots.preemption.overdue())
        return count

    assert found(9) == 0
    assert found(2) == 1


def test_bytes_that_are_worth_a_slot() -> None:
    assert Slots(8, speed=WORTH // 8).run(3) == 4
    assert Slots(8, speed=WORTH * 4).run(30) == 0


def stranded(preemption: Preemption, since: float, idle: int, *, job: Job) -> int:
    waiting = [Untaken(n, job, since, "peer") for n in range(4)]
    return len(preemption.stranded(waiting, {"peer": idle}))


def observed_at(now: float) -> Preemption:
    """Return one that has looked regularly until ``now``."""
    preemption = Preemption()
    for tick in range(20, -1, -1):
        preemption.observe(now - tick * TICK, [], finished=0, slots=8, waiting=False)
    return preemption


def test_silent_connection_is_left_for_an_idle_one() -> None:
    preemption, job = observed_at(100.0), Job(Host("h", 8, 8, active=4))
    assert stranded(preemption, 99.0, 3, job=job) == 3
    assert stranded(preemption, 99.75, 3, job=job) == 0
    job.stranded = 1
    assert stranded(preemption, 99.0, 3, job=job) == 0
    assert stranded(preemption, 97.0, 3, job=job) == 3


def test_silent_connection_is_left_for_a_new_one_only_where_the_host_answers_others() -> None:
    preemption, host = observed_at(100.0), Host("h", 8, 8, active=4, answered=98.0)
    job = Job(host)
    assert stranded(preemption, 99.0, 0, job=job) == 0
    host.answered = 99.5
    assert stranded(preemption, 99.0, 0, job=job) == 4


def test_nothing_is_stranded_that_could_not_be_read_as_the_process_was_held_up() -> None:
    preemption, job = observed_at(100.0), Job(Host("h", 8, 8, active=4))
    preemption.observe(103.0, [], finished=0, slots=8, waiting=False)
    assert stranded(preemption, 99.0, 4, job=job) == 0
