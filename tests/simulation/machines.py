"""Virtual machines, and what each knows of its processes: the proof that one has ended."""

from __future__ import annotations

import random

from gnomon.contracts.observer import SilentObserver
from gnomon.contracts.processes import NoProcesses, Processes
from gnomon.testing.virtual import VirtualProcess
from tests.simulation.history import History

FIRST = 1  # in a container the first process has this number, again after each restart


class Machine:
    """Gives numbers to processes. A number that is free again may be given to the next one."""

    def __init__(self, name: str, dice: random.Random, history: History) -> None:
        self.name = name
        self._dice = dice
        self._history = history
        self._numbers: dict[int, tuple[VirtualProcess, int]] = {}

    def start(self, process: VirtualProcess, at_s: float) -> str:
        """The process's name: its machine, its number and its start."""
        free = [number for number, (held, _) in self._numbers.items() if held.dead]
        if free and self._dice.random() < 0.7:
            number = self._dice.choice(free)
            self._history.reach("same number again")
        else:
            number = len(self._numbers) + FIRST
        start = int(at_s * 100)
        self._numbers[number] = (process, start)
        return f"{self.name} {number} {start}"

    def has_ended(self, number: int, start: int) -> bool:
        held = self._numbers.get(number)
        return held is None or held[0].dead or held[1] != start


class Known:
    """The `Processes` of one process: it asks its own machine about the others."""

    def __init__(self, machine: Machine, own: str) -> None:
        self._machine = machine
        self._own = own

    @property
    def own(self) -> str | None:
        return self._own

    def has_ended(self, process: str) -> bool:
        machine, number, start = process.split(" ")
        return self.is_ours(machine) and self._machine.has_ended(int(number), int(start))

    def is_ours(self, machine: str) -> bool:
        return machine == self._machine.name


class Gullible(Known):
    """Believes its own machine also about the processes of others."""

    def is_ours(self, machine: str) -> bool:
        return True


class Machines:
    """Which worker runs on which machine, for all of a world's life."""

    def __init__(self, seed: int, history: History) -> None:
        self._dice = random.Random(f"{seed} machines")
        self._history = history
        self._together = self._dice.random()
        self._is_provable = self._dice.random() < 0.8
        self._found: dict[str, Machine] = {}

    def processes(
        self, node: str, process: VirtualProcess, at_s: float, *, gullible: bool
    ) -> Processes:
        """What a process that starts now may ask."""
        machine = self._machine_of(node)
        name = machine.start(process, at_s)
        if not self._is_provable:
            return NoProcesses()
        return (Gullible if gullible else Known)(machine, name)

    def _machine_of(self, node: str) -> Machine:
        if node not in self._found:
            others = list(self._found.values())
            is_shared = others and self._dice.random() < self._together
            self._found[node] = (
                self._dice.choice(others)
                if is_shared
                else Machine(f"m-{node}", self._dice, self._history)
            )
        return self._found[node]


class Witness(SilentObserver):
    """Notes what the undertakers did, and rare moments; a bug that was survived breaks a rule."""

    def __init__(self, who: str, history: History) -> None:
        self._who = who
        self._history = history

    def event(self, name: str, /, **fields: object) -> None:
        if name == "worker_bug":
            self._history.violate("worker_bug", self._who, fields["loop"], fields["error"])
        elif name in ("action_undecidable", "attempt_lost"):
            self._history.reach(name.replace("_", " "))
        if name != "worker_buried":
            return
        self._history.note(self._who, "buried", *fields.values())
        self._history.reach("buried")
        self._history.reach("buried with attempts", bool(fields["interrupted"]))
        self._history.reach("buried, and went on elsewhere", bool(fields["elsewhere"]))

    def count(self, name: str, value: int = 1, /, **_labels: str) -> None:
        if name == "reservations_outlived":
            self._history.reach("own attempt outlived its reservation", value)
