"""A login shell on a terminal: commands are typed into it, and what the screen shows is read."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

# Wide enough for the tables of the pages: Interflow leaves out columns that do not fit.
ROWS, COLUMNS = 50, 240
# Colours, links and titles.
ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\].*?(\x07|\x1b\\)|[=>])")
QUESTION = re.compile(rb"\[(y/N|1/2)\]:? $")
ANSWERS = {b"y/N": b"y\n", b"1/2": b"1\n"}
PROMPT = re.compile("\x1e([0-9]+)\x1e$")


class Terminal:
    def __init__(self, user):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.initgroups(user.pw_name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            os.chdir(user.pw_dir)
            environment = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell, "LANG": "C.UTF-8", "TERM": "xterm-256color"}
            # Without line editing, the shell does not print what is typed.
            os.execve(user.pw_shell, ["-bash", "--noediting"], environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.bytes = b""
        self.type("stty -echo; PS1=$'\\036$?\\036' PS2= PROMPT_COMMAND=")
        if self.status(20) is None:
            raise TimeoutError(f"the shell does not start: {self.screen()}")

    def type(self, line):
        self.bytes = b""
        os.write(self.fd, f"{line}\n".encode())

    def read(self, seconds):
        """Reads what comes within this time. Returns whether something came."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:
            more = b""
        self.bytes += more
        return bool(more)

    def screen(self):
        text = ESCAPES.sub("", self.bytes.decode(errors="replace")).replace("\r\n", "\n")
        return PROMPT.sub("", text)

    def status(self, seconds):
        """The exit status of the command, once the shell asks for the next one; None if it does not within this time."""
        deadline = time.monotonic() + seconds
        while not (prompt := PROMPT.search(self.bytes[-8:].decode(errors="replace"))):
            if time.monotonic() > deadline:
                return None
            if not self.read(0.1) and (question := QUESTION.search(self.bytes)):
                # What a person says who follows the page.
                answer = ANSWERS[question[1]]
                self.bytes += answer
                os.write(self.fd, answer)
        return int(prompt[1])

    def run(self, line, seconds):
        self.type(line)
        status = self.status(seconds)
        return (status if status is not None else self.interrupt()), self.screen()

    def close(self):
        """Logs out."""
        self.type("exit")
        os.waitpid(self.pid, 0)
        os.close(self.fd)

    def interrupt(self, seconds=15):
        """Presses Ctrl-C."""
        os.write(self.fd, b"\x03")
        status = self.status(seconds)
        if status is None and (group := os.tcgetpgrp(self.fd)) > 0:
            os.killpg(group, signal.SIGKILL)
            self.status(5)
        return status
