"""Servers, users and keys of the oracle, on a loopback and in a /etc of its own.

To be run by `tests.fleet.homes.run_at_home`: it listens on port 22 and logs people in.
"""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncssh

from gputui.fleet.ssh.host_keys import hashed
from tests.fleet.oracle.rows import NUMBERS, Row
from tests.sshd import SSHD, SshHost, SshHosts, separate_privileges, wait_for_ssh

PASSWORD = "sesame"
SLOW_S = 3.0
USERS = {"alice": 4001, "bob": 4002, "me@corp": 4003, r"CORP\me": 4004}
OUTSIDE = "10.7.7.1"
"""An address of gpu-a that is not a loopback one: ssh checks the addresses of others only."""
ADDRESSES = {name: f"127.0.0.{number}" for name, number in NUMBERS.items() if name != "k"}
HOSTS = "\n".join(
    (
        "127.0.0.1 localhost x.lab x.lab.",
        *(f"{address} gpu-{name}" for name, address in ADDRESSES.items()),
        "127.0.0.11 gpu-k",
        f"{OUTSIDE} gpu-w",
        "127.0.0.99 gpu-many",
        "127.0.0.1 gpu-many gpu-6",
        "::1 gpu-6",
    )
)
SETTINGS = {
    "a": f"Port 2201\nListenAddress ::1\nListenAddress {OUTSIDE}\n",
    "c": "Port 2203\nHostCertificate {folder}/host-c-cert.pub\n",
    "e": "HostCertificate {folder}/host-e-cert.pub\n",
    "n": "HostCertificate {folder}/host-n-cert.pub\n",
    "m": "MaxAuthTries 3\n",
    "h": "HostbasedAuthentication yes\nHostbasedUsesNameFromPacketOnly yes\n"
    "GSSAPIAuthentication yes\nGSSAPIStrictAcceptorCheck no\n",
    "s": "AuthorizedKeysCommand /bin/sleep 2\nAuthorizedKeysCommandUser root\n",
    "p": "UsePAM yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication yes\n"
    "PubkeyAuthentication no\n",
    "o": "KexAlgorithms diffie-hellman-group14-sha1\nCiphers aes128-cbc\n",
}

KERBEROS = bool(
    find_spec("gssapi") and shutil.which("krb5kdc", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
)
"""Whether rows of Kerberos can be run here."""
KRB5 = """[libdefaults]
default_realm = LAB
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
default_ccache_name = FILE:{folder}/ticket
default_keytab_name = FILE:{folder}/keytab
[realms]
LAB = {{
kdc = 127.0.0.1:8888
}}
"""
KDC = """[realms]
LAB = {{
kdc_listen = 127.0.0.1:8888
kdc_tcp_listen = 127.0.0.1:8888
database_name = {folder}/principal
key_stash_file = {folder}/stash
}}
"""

PIPE = """#!{python} -S
import os, select, socket, sys
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for ready in select.select([0, there], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else there.recv(65536)
        if not data:
            sys.exit()
        there.sendall(data) if ready == 0 else os.write(1, data)
"""
ASKPASS = """#!/bin/sh
echo "$1" >> {folder}/asked
case $1 in
*"continue connecting"*|*"Please type"*) printf '%s\\n' "${{ANSWER_HOST_KEY:-no}}";;
*passphrase*) printf '%s\\n' "$ANSWER_PASSPHRASE";;
*) printf '%s\\n' "$ANSWER_PASSWORD";;
esac
"""
KNOWN_KEY = """#!/bin/sh
[ "$1" = HOSTNAME ] && echo "$4 $2 $3"
exit 0
"""


def passwd(folder: Path) -> str:
    """Return lines of /etc/passwd for the users that log in, with their password."""
    command = ["openssl", "passwd", "-6", PASSWORD]
    password = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "\n".join(
        f"{name}:{password}:{uid}:{uid}::{folder}:/bin/sh" for name, uid in USERS.items()
    )


@dataclass(slots=True)
class World:
    """All that rows refer to."""

    folder: Path
    home: Path
    hosts: SshHosts = field(init=False)
    words: dict[str, str] = field(default_factory=dict)
    agent: str = ""

    def __post_init__(self) -> None:
        self.hosts = SshHosts(self.folder)

    @property
    def keys(self) -> Path:
        """Where the client's keys are."""
        return self.folder / "keys"

    def create(self) -> None:
        self.folder.chmod(0o755)
        self.keys.mkdir()
        (self.folder / "authorized").mkdir()
        self._make_keys()
        self._make_programs()
        self._make_this_host_known()
        if KERBEROS:
            self._start_kerberos()
        separate_privileges()
        subprocess.run(["ip", "addr", "add", f"{OUTSIDE}/32", "dev", "lo"], check=True)
        for name, address in ADDRESSES.items():
            self._start(name, address)
        self._start_agent("agent", "two")
        self._start_agent("full-agent", *(f"other-{number}" for number in range(12)), "two")
        threading.Thread(target=self._be_a_slow_agent, daemon=True).start()
        self._start_rounds()
        self._start_master()

    def destroy(self) -> None:
        subprocess.run(["ssh", "-S", self.words["master"], "-O", "exit", "gpu-p"])
        self.hosts.stop()

    def fill(self, text: str) -> str:
        text = re.sub(
            r"\{hashed (\S+)\}", lambda found: hashed(found[1], b"0123456789abcdefghij"), text
        )
        return text.format_map(self.words)

    def prepare(self, row: Row) -> dict[str, str]:
        """Put a row's files in place; returns the environment for it."""
        shutil.rmtree(self.home, ignore_errors=True)
        ssh = self.home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        known = self.words["known"] if row.known is None else self.fill(row.known) + "\n"
        (ssh / "known_hosts").write_text(known)
        (ssh / "config").write_text(self.fill(row.config))
        Path("/etc/ssh/ssh_config").write_text(self.fill(row.system))
        for name, text in row.files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(text))
            path.chmod(0o600)
        (self.folder / "asked").unlink(missing_ok=True)
        os.chdir(self.home)
        return {name: self.fill(value) for name, value in row.environ.items()}

    def key_name(self, line: str) -> str:
        """Return the name of a key by a line that sshd tells of it."""
        blob = line.split()[2] if len(line.split()) > 2 else ""
        public = (*self.keys.glob("*.pub"), *self.folder.glob("*.pub"))
        named = {path.read_text().split()[1]: path.stem for path in public}
        return named.get(blob, line.split()[0] if line else "")

    def _make_keys(self) -> None:
        for name in ("one", "two", "three", "certified", *(f"other-{n}" for n in range(12))):
            _keygen("-t", "ed25519", "-f", self.keys / name)
        _keygen("-t", "ed25519", "-N", "open", "-f", self.keys / "locked")
        _keygen("-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "sesame", "-f", self.keys / "pem")
        _keygen("-t", "ecdsa", "-m", "PKCS8", "-N", "sesame", "-f", self.keys / "pkcs8")
        for name in ("locked", "pem", "pkcs8"):
            (self.keys / f"{name}.pub").rename(self.folder / f"{name}.pub")
        (self.keys / "open").write_bytes((self.keys / "two").read_bytes())
        (self.keys / "open").chmod(0o644)
        (self.keys / "alice-key").symlink_to("two")
        for name in ("ca", "user-ca", *(f"host-{each}" for each in ADDRESSES if each != "r")):
            _keygen("-t", "ed25519", "-f", self.folder / name)
        _keygen("-t", "rsa", "-b", "2048", "-f", self.folder / "host-r")
        certify = ("-s", self.folder / "ca", "-I", "c", "-h")
        _keygen(*certify, "-n", "gpu-c", "-z", "7", self.folder / "host-c.pub")
        past = ("-V", "20200101:20210101")
        _keygen(*certify, "-n", "gpu-e", *past, self.folder / "host-e.pub")
        _keygen(*certify, "-n", "web-n", self.folder / "host-n.pub")
        for name in ("two", "certified"):
            _keygen(
                "-s", self.folder / "user-ca", "-I", "u", "-n", "bob", self.keys / f"{name}.pub"
            )
        (self.keys / "two-cert.pub").rename(self.keys / "bob-cert.pub")
        public = {name: _public(self.keys / name) for name in ("one", "two", "three")}
        public |= {name: _public(self.folder / name) for name in ("locked", "pem", "pkcs8")}
        allowed = {
            "root": ("one",),
            "alice": ("one", "two", "locked", "pem", "pkcs8"),
            "bob": ("three",),
            "me@corp": ("one",),
            r"CORP\me": ("one",),
        }
        for user, names in allowed.items():
            path = self.folder / "authorized" / user
            path.write_text("".join(f"{public[name]}\n" for name in names))
        hosts = {name: _public(self.folder / f"host-{name}") for name in ADDRESSES}
        known = [f"gpu-{name},[gpu-{name}]:* {key}\n" for name, key in hosts.items()]
        more = [f"gpu-k {hosts['a']}\n", f"::1,[::1]:*,gpu-many,gpu-6,x.lab,gpu-w {hosts['a']}\n"]
        self.words = {
            **hosts,
            "ca": _public(self.folder / "ca"),
            "one": (self.keys / "one").read_text(),
            "known": "".join([*known, *more]),
            "keys": str(self.keys),
            "home": str(self.home),
            "folder": str(self.folder),
            "agent": str(self.folder / "agent"),
            "full": str(self.folder / "full-agent"),
            "slow": str(self.folder / "slow-agent"),
            "master": str(self.folder / "master"),
        }

    def _make_this_host_known(self) -> None:
        """Have this machine a /etc/ssh of its own, and a key by which others let its root in."""
        etc = Path("/etc/ssh")
        subprocess.run(["mount", "-t", "tmpfs", "none", str(etc)], check=True)
        _keygen("-t", "ed25519", "-f", etc / "ssh_host_ed25519_key")
        (etc / "shosts.equiv").write_text("localhost root\n")
        public = _public(etc / "ssh_host_ed25519_key")
        (etc / "ssh_known_hosts").write_text(f"localhost {public}\n")

    def _start_kerberos(self) -> None:
        """Start a KDC that knows gpu-h and alice, and get her ticket."""
        folder = self.folder / "kerberos"
        folder.mkdir()
        files = {"KRB5_CONFIG": KRB5, "KRB5_KDC_PROFILE": KDC}
        for name, text in files.items():
            (folder / name).write_text(text.format(folder=folder))
            os.environ[name] = str(folder / name)
        create = ("kdb5_util", "-r", "LAB", "-P", "master", "create", "-s")
        admin = ("kadmin.local", "-r", "LAB", "-q")
        for command in (
            create,
            (*admin, f"addprinc -pw {PASSWORD} alice"),
            (*admin, "addprinc -randkey host/gpu-h"),
            (*admin, f"ktadd -k {folder}/keytab host/gpu-h"),
        ):
            subprocess.run(command, check=True, capture_output=True)
        self.hosts.processes.append(
            subprocess.Popen(
                ["krb5kdc", "-n"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        bound = time.monotonic() + 10
        ticket = ("kinit", "alice")
        while subprocess.run(ticket, input=PASSWORD, text=True, capture_output=True).returncode:
            assert time.monotonic() < bound, "no ticket"
            time.sleep(0.05)

    def _make_programs(self) -> None:
        programs = {
            "pipe": PIPE.format(python=sys.executable),
            "askpass": ASKPASS.format(folder=self.folder),
            "known": f'#!/bin/sh\necho "$1 {self.words["a"]}"\n',
            "known-key": KNOWN_KEY,
            "known-c": '#!/bin/sh\necho "$1 $2 $3" >> ~/said\n',
            "slow-known": f'#!/bin/sh\nsleep 2\necho "$1 {self.words["a"]}"\n',
            "known-half": "#!/bin/sh\n[ $1 != HOSTNAME ]\n",
        }
        for name, text in programs.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def _start(self, name: str, address: str) -> None:
        host = SshHost(f"gpu-{name}", address, 22, "root")
        settings = SETTINGS.get(name, "").format(folder=self.folder)
        config = self.folder / f"sshd-{name}"
        config.write_text(
            f"{settings}Port 22\nListenAddress {address}\nHostKey {self.folder}/host-{name}\n"
            f"AuthorizedKeysFile {self.folder}/authorized/%u\nTrustedUserCAKeys "
            f"{self.folder}/user-ca.pub\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nExposeAuthInfo yes\n"
            "LogLevel VERBOSE\nMaxAuthTries 20\n"
        )
        (self.folder / host.name).mkdir()
        assert SSHD
        with (self.folder / host.name / "sshd.log").open("wb") as log:
            self.hosts.processes.append(
                subprocess.Popen([SSHD, "-D", "-e", "-f", config], stdout=log, stderr=log)
            )
        wait_for_ssh(self.hosts, host)

    def _start_agent(self, name: str, *keys: str) -> None:
        path = self.folder / name
        command = ["ssh-agent", "-D", "-a", path]
        self.hosts.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        environ = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        bound = time.monotonic() + 5
        while subprocess.run(["ssh-add", "-l"], env=environ, capture_output=True).returncode == 2:
            assert time.monotonic() < bound, "ssh-agent takes no connection"
            time.sleep(0.01)
        add = ["ssh-add", "-q", *(self.keys / key for key in keys)]
        subprocess.run(add, env=environ, check=True)

    def _be_a_slow_agent(self) -> None:
        """Answer each client after some seconds, with the end of the connection."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.folder / "slow-agent"))
            server.listen()
            while True:
                client, _ = server.accept()
                time.sleep(SLOW_S)
                client.close()

    def _start_rounds(self) -> None:
        """Start a server that asks alice for a password and two codes, and bob for four more."""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        listening = _ask_in_rounds(str(self.folder / "host-a"))
        asyncio.run_coroutine_threadsafe(listening, loop).result()

    def _start_master(self) -> None:
        """Have an ssh hold a connection to gpu-p open, which a password was given for."""
        known = self.folder / "known_hosts"
        known.write_text(self.words["known"])
        options = ("-o", f"UserKnownHostsFile={known}", "-o", "PreferredAuthentications=password")
        subprocess.run(
            ["ssh", "-f", "-N", "-M", "-S", self.words["master"], *options, "alice@gpu-p"],
            env={**os.environ, **environment({"password": PASSWORD}, self.folder)},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(self.folder / "no-master"))


async def _ask_in_rounds(host_key: str) -> None:
    await asyncssh.listen(
        "127.0.0.11",
        22,
        server_factory=Rounds,
        server_host_keys=[host_key],
        process_factory=_say_who,
    )


class Rounds(asyncssh.SSHServer):
    """Lets in who answers each of several rounds of questions."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._left = 0

    def begin_auth(self, username: str) -> bool:
        self._rounds = 5 if username == "bob" else 3
        return username != "guest"

    def public_key_auth_supported(self) -> bool:
        return False

    def connection_requested(self, *_: object) -> bool:
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> Any:
        self._left = self._rounds
        return "", "", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: Any) -> Any:
        self._left -= 1
        if list(responses) != [PASSWORD]:
            return False
        return ("", "", "", [("Password: ", False)]) if self._left else True


async def _say_who(process: "asyncssh.SSHServerProcess[str]") -> None:
    user = process.get_extra_info("username")
    process.stdout.write(f"{user} 127.0.0.1 1 127.0.0.11 22\n\nkeyboard-interactive\n")
    process.exit(0)


def _keygen(*arguments: str | Path) -> None:
    made = [] if "-s" in arguments or "-N" in arguments else ["-N", ""]
    subprocess.run(["ssh-keygen", "-q", *made, *map(str, arguments)], check=True)


def _public(path: Path) -> str:
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])


def environment(answers: Mapping[str, str], folder: Path) -> dict[str, str]:
    named = {f"ANSWER_{kind.upper().replace('-', '_')}": text for kind, text in answers.items()}
    return {
        **named,
        "SSH_ASKPASS": str(folder / "askpass"),
        "SSH_ASKPASS_REQUIRE": "force",
        "DISPLAY": ":0",
    }
