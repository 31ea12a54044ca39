# SPDX-License-Identifier: BSD-2-Clause
"""stat_watch.py CASE COMMAND...: runs a command that watches on a terminal of 12 rows and 70 columns.

Fails with an AssertionError.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios

ROWS, COLUMNS = 12, 70
HOME, HIDE, SHOW = "\033[H", "\033[?25l", "\033[?25h"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, command):
        self.seen = ""
        self.before = None
        ready, go = os.pipe()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.read(ready, 1)
            os.execv(command[0], command)
        self.size(ROWS, COLUMNS)
        self.before = termios.tcgetattr(self.master)
        os.write(go, b"x")

    def size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def more(self):
        """Reads what there is, waiting for it. False at the end."""
        if not select.select([self.master], [], [], 20)[0]:
            raise AssertionError(f"nothing more after {self.seen[-300:]!r}")
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.seen += data.decode("ascii")
        return bool(data)

    def picture(self, pattern=""):
        """The lines of the next whole picture whose first line has this in it."""
        while True:
            parts = self.seen.split(HOME)
            for index, part in enumerate(parts[1:-1], 1):
                # What is shown and cleared first is no picture.
                if part.count("\r\n") and re.search(pattern, part.split("\r\n")[0]):
                    self.seen = HOME.join([""] + parts[index + 1:])
                    return [re.sub(r"\033\[[KJ]", "", line) for line in part.split("\r\n")]
            assert self.more(), f"ended, without {pattern!r}: {self.seen[-300:]!r}"

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Waits for the command. Its status as of waitpid()."""
        while self.more():
            pass
        return os.waitpid(self.pid, 0)[1]

    def check_restored(self):
        now = termios.tcgetattr(self.master)
        assert now[:4] == self.before[:4], (self.before, now)
        assert self.seen.count(SHOW) > 0 and self.seen.rindex(SHOW) > self.seen.rfind(HIDE)


def case_picture(terminal):
    lines = terminal.picture()
    assert re.match(r"pinshim stat  \d\d:\d\d:\d\d  every 0.1 s  \d+ alive", lines[0]), lines
    assert lines[1].startswith("PROGRAM "), lines
    assert len(lines) == ROWS and lines[-1] == "...", lines
    assert all(len(line) <= COLUMNS for line in lines), lines
    terminal.press(b"q")
    assert terminal.end() == 0
    terminal.check_restored()


def case_keys(terminal):
    terminal.size(40, 200)
    assert "by job " in terminal.picture("by job")[0]
    terminal.press(b">")
    terminal.picture("by program ")
    terminal.press(b"<")
    terminal.picture("by job ")
    terminal.press(b"<")
    terminal.picture("by aio ")
    terminal.press(b"<<<<<<<r")
    lines = terminal.picture("by pinned reversed ")
    pinned = [float(line.split()[5]) for line in lines[2:] if line.startswith("made")]
    assert len(pinned) > 10 and pinned == sorted(pinned), lines
    terminal.press(b"xyz q")
    assert terminal.end() == 0
    terminal.check_restored()


def case_window(terminal):
    terminal.picture()
    terminal.size(5, 30)
    while True:
        lines = terminal.picture()
        if len(lines) == 5:
            break
    assert all(len(line) <= 30 for line in lines), lines
    terminal.size(1, 1)
    terminal.picture()
    terminal.picture()
    terminal.press(b"q")
    assert terminal.end() == 0


def case_signal(terminal, number):
    terminal.picture()
    if number == signal.SIGINT:
        terminal.press(b"\x03")
    else:
        os.kill(terminal.pid, number)
    status = terminal.end()
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == number, status
    terminal.check_restored()


def case_stop(terminal):
    terminal.picture()
    terminal.press(b"\x1a")
    assert os.WIFSTOPPED(os.waitpid(terminal.pid, os.WUNTRACED)[1])
    while select.select([terminal.master], [], [], 0)[0]:
        terminal.more()
    terminal.check_restored()
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.seen = ""
    terminal.picture()
    assert terminal.seen.count(SHOW) == 0
    terminal.press(b"q")
    assert terminal.end() == 0
    terminal.check_restored()


def case_dumb(terminal):
    assert terminal.end() == 0
    assert "\033" not in terminal.seen
    assert terminal.seen.count("PROGRAM ") == 2, terminal.seen


def main():
    case, command = sys.argv[1], sys.argv[2:]
    terminal = Terminal(command)
    try:
        if case.isdigit():
            case_signal(terminal, int(case))
        else:
            globals()["case_" + case](terminal)
    finally:
        try:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


main()
