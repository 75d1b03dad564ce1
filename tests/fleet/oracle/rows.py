"""The table: one SSH configuration a row, and what ssh and gputui must both make of it.

Names: gpu-a, gpu-b, gpu-c (its host key has a certificate), gpu-p (passwords only, through PAM),
gpu-o (algorithms of long ago) and gpu-r (an RSA host key), each an sshd of its own. Keys: one and
two let alice in, one lets root in, three bob; `locked` is one of alice's with a passphrase.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALICE_KEY = "IdentityFile {keys}/one\nIdentitiesOnly yes\n"
ALICE = f"User alice\n{ALICE_KEY}"

CA = "@cert-authority * {ca}"
AGENT = {"SSH_AUTH_SOCK": "{agent}"}
UNKNOWN: dict[str, Any] = {"asked": ("host-key",), "expect": "unknown"}
"""A person is asked about a key, and says nothing."""
ACCEPTED: dict[str, Any] = {"asked": ("host-key",), "answers": {"host-key": "yes"}}
PASSWORD: dict[str, Any] = {"asked": ("password",), "answers": {"password": "sesame"}}

NUMBERS = {name: number for number, name in enumerate("abcporenmskh", 1)}
"""Host → the last number of its address: gpu-a is 127.0.0.1."""
OTHERS = {"::1": "::1", "[::1]": "::1", "10.7.7.1": "10.7.7.1", "gpu-w": "10.7.7.1"}


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration."""

    name: str
    config: str = ""
    """~/.ssh/config; `{keys}`, `{home}` and `{folder}` are filled in."""
    expect: str = "alice one"
    """Why nobody is let in; or who is and by which key, on the line's host if no other is named."""
    line: str = "gpu-a"
    """The line of the hosts file."""
    system: str = ""
    """/etc/ssh/ssh_config."""
    known: str | None = None
    """~/.ssh/known_hosts in place of one that has every host."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Other files of the home."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """What a person answers, by the kind of question."""
    environ: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    """What a person is asked, by kind."""
    untouched: str = ""
    """A file that gputui must not make."""
    since: tuple[int, int] = (0, 0)
    """The OpenSSH that has the options; an earlier one refuses the configuration."""
    kerberos: bool = False
    """Whether it needs a KDC, and gputui's optional package for it."""
    stage_s: float = 10.0
    """The bound of gputui's stages."""

    @property
    def expected(self) -> str:
        """What both clients are to come to: `user@address:port key`, or why not."""
        user, _, key = self.expect.partition(" ")
        return f"{user}@{address(self.line)} {key}" if key and ":" not in user else self.expect


def address(line: str) -> str:
    """Return where a line of a hosts file leads, with the port: to gpu-a for any other name.

    >>> address("gpu-c:2203"), address("bob@x"), address("[::1]:2201")
    ('127.0.0.3:2203', '127.0.0.1:22', '::1:2201')
    """
    name = line.partition(" ; ")[0].rpartition("@")[2]
    host, port = name, "22"
    if re.search(r"[^:]:\d+$", name) or name.startswith("["):
        host, _, port = name.rpartition(":")
    number = NUMBERS.get(host.lower().removeprefix("gpu-"), 1)
    return f"{OTHERS.get(host, f'127.0.0.{number}')}:{port}"


def alice(name: str, lines: str = "", **how: Any) -> Row:
    """Return a row whose configuration begins with alice and her key."""
    return Row(name, ALICE + (f"{lines}\n" if lines else ""), **how)


ROWS = (
    # Where the configuration is
    Row("no configuration", expect="root one", files={".ssh/id_ed25519": "{one}"}),
    Row("~/.ssh/config by default", "Host gpu-a\n" + ALICE),
    Row("/etc/ssh/ssh_config", system="Host gpu-a\n" + ALICE),
    Row(
        "the user's before the system's",
        "User alice\nIdentityFile {keys}/one\n",
        system="User bob\n",
    ),
    Row("Include", "Include conf.d/*.conf\n", files={".ssh/conf.d/a.conf": "Host gpu-a\n" + ALICE}),
    Row("Match host", "Match host gpu-?\n" + ALICE),
    Row("Match originalhost", "Host x\nHostName gpu-a\nMatch originalhost x\n" + ALICE, line="x"),
    Row("Match user", "Match user alice\nIdentityFile {keys}/one\n", line="alice@gpu-a"),
    Row("Match exec", 'Match exec "test %h = gpu-a"\n' + ALICE),
    Row("Match exec that fails", 'Match exec "false"\n' + ALICE, expect="login"),
    Row("Match final", "Host x\nHostName gpu-a\nMatch final host gpu-a\n" + ALICE, line="x"),
    Row("a pattern with a negation", "Host * !gpu-a\nPort 9\nHost gpu-*\n" + ALICE),
    alice("the first value counts", "Host *\nUser bob\nPort 22"),
    Row("an option that does not exist", "Frobnicate yes\n", expect="configuration"),
    # Where to
    Row("HostName with %h", "Host a\nHostName gpu-%h\n" + ALICE, line="a"),
    alice("Port", "Port 2201", expect="alice@127.0.0.1:2201 one"),
    alice("the port of the line", line="gpu-a:2201"),
    alice("two ports of one gateway", line="gpu-a:2201 ; gpu-a"),
    Row("User", "User bob\nIdentityFile {keys}/three\n", expect="bob three"),
    Row("the user of the line", "User bob\nIdentityFile {keys}/one\n", line="alice@gpu-a"),
    alice("AddressFamily inet6", "AddressFamily inet6", line="gpu-6", expect="alice@::1:22 one"),
    alice("AddressFamily inet", "AddressFamily inet", line="gpu-6"),
    alice("an IPv6 address", line="::1"),
    alice("an IPv6 address and port", line="[::1]:2201"),
    alice("a name whose first address refuses", line="gpu-many"),
    alice("a name that is not there", line="gpu-none", expect="unresolved"),
    alice("a port that refuses", line="gpu-a:9", expect="refused"),
    alice("BindAddress", "BindAddress 127.0.0.77", expect="alice@127.0.0.1:22 one from 127.0.0.77"),
    Row(
        "CanonicalizeHostname",
        "CanonicalizeHostname yes\nCanonicalDomains lab\nHost x.lab\n" + ALICE,
        line="x",
    ),
    # Through others
    alice("ProxyJump", "Host gpu-b\nProxyJump gpu-a", line="gpu-b"),
    alice("ProxyJump with user and port", "Host gpu-b\nProxyJump alice@gpu-a:2201", line="gpu-b"),
    alice("ProxyJump, a chain", "Host gpu-c\nProxyJump gpu-a,gpu-b", line="gpu-c"),
    Row(
        "ProxyJump of a ProxyJump",
        ALICE + "Host gpu-c\nProxyJump gpu-b\nHost gpu-b\nProxyJump gpu-a\n",
        line="gpu-c",
    ),
    Row("ProxyJump none", ALICE + "Host gpu-a\nProxyJump none\nHost *\nProxyJump gpu-none\n"),
    alice("Host * with ProxyJump", "Host *\nProxyJump gpu-b", expect="loop"),
    Row(
        "a jump host that refuses the key",
        "Host gpu-b\nProxyJump gpu-a\n" + ALICE + "Host gpu-a\nIdentityFile {keys}/three\n"
        "User alice\nIdentitiesOnly yes\n",
        line="gpu-b",
        expect="login",
    ),
    alice("ProxyCommand", "ProxyCommand {folder}/pipe %h %p"),
    alice("ProxyCommand of a shell", "ProxyCommand sh -c '{folder}/pipe %h %p' # %n"),
    alice("ProxyCommand that fails", "ProxyCommand false", expect="proxy"),
    alice("ProxyCommand none", "ProxyCommand none"),
    # Host keys
    alice("a changed host key", known="gpu-a {b}", expect="changed"),
    alice(
        "a changed key, the address is known", known="127.0.0.1 {a}\ngpu-a {b}", expect="changed"
    ),
    alice("a changed key of another kind", known="gpu-a {r}", expect="changed"),
    alice("an unknown host key, asked", known="", **ACCEPTED),
    alice("an unknown host key, refused", known="", **UNKNOWN),
    alice("only the address is known", known="127.0.0.1 {a}", **UNKNOWN),
    alice("a known name without its port", line="gpu-a:2201", known="gpu-a {a}"),
    alice("another key without its port", line="gpu-a:2201", known="gpu-a {b}", **UNKNOWN),
    alice("a name in capitals", line="GPU-A"),
    alice("StrictHostKeyChecking yes", "StrictHostKeyChecking yes", known="", expect="unknown"),
    alice("StrictHostKeyChecking accept-new", "StrictHostKeyChecking accept-new", known=""),
    alice(
        "accept-new, changed",
        "StrictHostKeyChecking accept-new",
        known="gpu-a {b}",
        expect="changed",
    ),
    alice("StrictHostKeyChecking no", "StrictHostKeyChecking no", known=""),
    alice("no, changed", "StrictHostKeyChecking no", known="gpu-a {b}"),
    Row(
        "no, changed: no password is sent",
        "User alice\nStrictHostKeyChecking no\n",
        line="gpu-p",
        known="gpu-p {b}",
        answers={"password": "sesame"},
        expect="login",
    ),
    alice("no, revoked", "StrictHostKeyChecking no", known="gpu-a {a}\n@revoked gpu-a {a}"),
    alice("HostKeyAlias", "HostKeyAlias farm", known="farm {a}"),
    alice("HostKeyAlias and a port", "HostKeyAlias farm", line="gpu-a:2201", known="farm {a}"),
    Row(
        "HostName is what is looked up",
        "Host x\nHostName gpu-a\n" + ALICE,
        line="x",
        known="gpu-a {a}",
    ),
    Row(
        "the name as typed is not",
        "Host x\nHostName gpu-a\n" + ALICE,
        line="x",
        known="x {a}",
        **UNKNOWN,
    ),
    alice("a hashed entry", known="{hashed gpu-a} {a}"),
    alice("a hashed entry with a port", line="gpu-a:2201", known="{hashed [gpu-a]:2201} {a}"),
    alice("HashKnownHosts", "HashKnownHosts yes\nStrictHostKeyChecking accept-new", known=""),
    alice(
        "UserKnownHostsFile",
        "UserKnownHostsFile ~/.ssh/other-%h",
        known="",
        files={".ssh/other-gpu-a": "gpu-a {a}\n"},
    ),
    alice(
        "GlobalKnownHostsFile",
        "GlobalKnownHostsFile {home}/all",
        known="",
        files={"all": "gpu-* {a}\n"},
    ),
    alice("@cert-authority", line="gpu-c", known="@cert-authority gpu-* {ca}"),
    alice(
        "@cert-authority for another name",
        line="gpu-c",
        known="@cert-authority web-* {ca}",
        **UNKNOWN,
    ),
    alice(
        "another authority, its key is known",
        line="gpu-c",
        known="@cert-authority * {a}\ngpu-c {c}",
    ),
    Row(
        "a certificate for another host",
        "HostName gpu-c\nHost y\n" + ALICE,
        line="y",
        expect="alice@127.0.0.3:22 one",
        known=CA,
    ),
    alice("@revoked", known="gpu-a {a}\n@revoked gpu-a {a}", expect="revoked"),
    alice("@revoked for every name", known="gpu-a {a}\n@revoked * {a}", expect="revoked"),
    alice(
        "@revoked with a port",
        line="gpu-a:2201",
        known="[gpu-a]:2201 {a}\n@revoked [gpu-a]:2201 {a}",
        expect="revoked",
    ),
    alice(
        "@revoked authority",
        line="gpu-c",
        known="@cert-authority * {ca}\n@revoked * {ca}",
        expect="revoked",
    ),
    alice(
        "@revoked key with a certificate",
        line="gpu-c",
        known="@cert-authority * {ca}\n@revoked * {c}",
        expect="revoked",
    ),
    alice(
        "CASignatureAlgorithms without the authority's",
        "CASignatureAlgorithms rsa-sha2-512",
        line="gpu-c",
        known=CA,
        **UNKNOWN,
    ),
    alice(
        "CASignatureAlgorithms with it",
        "CASignatureAlgorithms rsa-sha2-512,ssh-ed25519",
        line="gpu-c",
        known=CA,
    ),
    alice(
        "another authority, its key is not known",
        line="gpu-c",
        known="@cert-authority * {a}",
        **UNKNOWN,
    ),
    alice("HostbasedAuthentication", "HostbasedAuthentication yes"),
    alice(
        "HostbasedAuthentication with EnableSSHKeysign",
        "HostbasedAuthentication yes",
        line="gpu-h",
        system="EnableSSHKeysign yes\n",
        expect="alice hostbased",
    ),
    alice(
        "HostbasedAuthentication without EnableSSHKeysign, then the key",
        "HostbasedAuthentication yes",
        line="gpu-h",
    ),
    alice(
        "HostbasedAuthentication that the server does not allow, then the key",
        "HostbasedAuthentication yes",
        system="EnableSSHKeysign yes\n",
    ),
    alice(
        "HostbasedAuthentication, publickey preferred",
        "HostbasedAuthentication yes\nPreferredAuthentications publickey,hostbased",
        line="gpu-h",
        system="EnableSSHKeysign yes\n",
    ),
    alice(
        "GSSAPIAuthentication with a ticket",
        "GSSAPIAuthentication yes",
        line="gpu-h",
        expect="alice gssapi-with-mic",
        kerberos=True,
    ),
    alice(
        "GSSAPIAuthentication without a ticket, then the key",
        "GSSAPIAuthentication yes",
        line="gpu-h",
        environ={"KRB5CCNAME": "FILE:{folder}/no-ticket"},
        kerberos=True,
    ),
    Row(
        "GSSAPIAuthentication of another user's ticket, then the key",
        "User bob\nIdentityFile {keys}/three\nIdentitiesOnly yes\nGSSAPIAuthentication yes\n",
        line="gpu-h",
        expect="bob three",
        kerberos=True,
    ),
    alice(
        "GSSAPIAuthentication that the server does not allow, then the key",
        "GSSAPIAuthentication yes",
        kerberos=True,
    ),
    alice("KnownHostsCommand", "KnownHostsCommand {folder}/known %H", known=""),
    alice(
        "KnownHostsCommand by the key", "KnownHostsCommand {folder}/known-key %I %t %K %H", known=""
    ),
    alice(
        "KnownHostsCommand that fails for the key",
        "KnownHostsCommand {folder}/known-half %I",
        known="",
        expect="unknown",
    ),
    alice("KnownHostsCommand that fails", "KnownHostsCommand /bin/false", expect="unknown"),
    alice("RequiredRSASize", "RequiredRSASize 3072", line="gpu-r", expect="weak"),
    alice("a line that cannot be read", known="gpu-a\n@what gpu-a x\n|1|c2E=|é {a}\ngpu-a {a}"),
    # Other ways to hosts
    *(
        Row(
            f"ProxyJump with tokens, {what}",
            ALICE + f"{lines}\n",
            expect="alice@127.0.0.2:22 one",
            line=line,
        )
        for what, line, lines in (
            ("%r", "gpu-b", "Host gpu-b\nProxyJump %r@gpu-a"),
            ("%h", "x", "Host x\nHostName gpu-b\nProxyJump by-%h\nHost by-gpu-b\nHostName gpu-a"),
            ("%n", "x", "Host x\nHostName gpu-b\nProxyJump by-%n\nHost by-x\nHostName gpu-a"),
            ("%p", "gpu-b:22", "Host gpu-b\nProxyJump by-%p\nHost by-22\nHostName gpu-a"),
            ("%%", "gpu-b", "Host gpu-b\nProxyJump a%%\nHost a%\nHostName gpu-a"),
        )
    ),
    alice("ProxyJump with tokens, two", "Host gpu-b\nProxyJump %r@gpu-c,%r@gpu-a", line="gpu-b"),
    alice(
        "ProxyCommand of an ssh that asks for a password",
        "Host gpu-b\nProxyCommand ssh -W %h:%p gpu-p",
        line="gpu-b",
        **PASSWORD,
    ),
    alice(
        "ProxyCommand of an ssh that asks about a host key",
        "Host gpu-b\nProxyCommand ssh -W %h:%p gpu-a",
        line="gpu-b",
        known="gpu-b {b}",
        **ACCEPTED,
    ),
    Row(
        "ProxyCommand of an ssh that asks for a passphrase",
        "User alice\nHost gpu-a\nIdentityFile {keys}/locked\nIdentitiesOnly yes\n"
        "Host gpu-b\nIdentityFile {keys}/one\nProxyCommand ssh -W %h:%p gpu-a\n",
        line="gpu-b",
        answers={"passphrase": "open"},
        asked=("passphrase",),
    ),
    Row(
        "a ControlMaster that is there",
        "Host gpu-p\nUser alice\nControlPath {master}\n",
        line="gpu-p",
        expect="alice password",
    ),
    Row(
        "a ControlMaster that is there, for commands in the background",
        "Host gpu-p\nUser alice\nControlPath {master}\n"
        "ForkAfterAuthentication yes\nStdinNull yes\n",
        line="gpu-p",
        expect="alice password",
    ),
    Row(
        "a ControlMaster that is there, behind a jump host that is not",
        "Host gpu-p\nUser alice\nControlPath {master}\nProxyJump gpu-none\n",
        line="gpu-p",
        expect="alice password",
    ),
    Row(
        "a ControlMaster of a jump host",
        ALICE + "Host gpu-b\nProxyJump gpu-p\nHost gpu-p\nControlPath {master}\n",
        line="gpu-b",
    ),
    Row(
        "a ControlMaster of the first of two jump hosts",
        ALICE + "Host gpu-b\nProxyJump gpu-p,gpu-a\nHost gpu-p\nControlPath {master}\n",
        line="gpu-b",
    ),
    alice("a ControlMaster that is gone", "ControlPath {folder}/no-master"),
    alice("ControlPath without a socket", "ControlPath {home}/%C"),
    # What a session is
    alice("ForkAfterAuthentication", "ForkAfterAuthentication yes"),
    alice("StdinNull", "StdinNull yes"),
    alice("SessionType none", "SessionType none"),
    alice("SessionType subsystem", "SessionType subsystem"),
    Row(
        "all three, on a jump host, too",
        ALICE + "ForkAfterAuthentication yes\nStdinNull yes\nSessionType none\n"
        "RemoteCommand true\nHost gpu-b\nProxyJump gpu-a\n",
        line="gpu-b",
    ),
    Row(
        "Match command", 'Match command "echo *"\n' + ALICE + "Match all\nUser bob\n", since=(10, 0)
    ),
    Row(
        "Match sessiontype",
        "Match sessiontype exec\n" + ALICE + "Match all\nUser bob\n",
        since=(10, 0),
    ),
    Row(
        "Match sessiontype of a jump host",
        "Match sessiontype exec host gpu-a\nUser nobody\n"
        "Match all\n" + ALICE + "Host gpu-b\nProxyJump gpu-a\n",
        line="gpu-b",
        since=(10, 0),
    ),
    # Names
    Row("a user with an @", ALICE_KEY, line="me@corp@gpu-a", expect="me@corp one"),
    Row("a user with a backslash", ALICE_KEY, line=r"CORP\me@gpu-a", expect=r"CORP\me one"),
    *(
        Row(f"a host called {name}", f"Host {name}\nHostName gpu-a\n" + ALICE, line=name)
        for name in ("_gpu", "gpu-a-", "gpu_1-", "müller", "MÜLLER", "x.", "日本")
    ),
    Row(
        "a host called müller in a pattern", "Host m?*ller\nHostName gpu-a\n" + ALICE, line="müller"
    ),
    alice("%C of KnownHostsCommand", "KnownHostsCommand {folder}/known-c %C %I %H"),
    alice(
        "%C of KnownHostsCommand through a jump host",
        "Host gpu-b\nProxyJump gpu-a\nKnownHostsCommand {folder}/known-c %C %I %H",
        line="gpu-b",
    ),
    # The keys of addresses
    *(
        Row(
            f"CheckHostIP, another key of the address, {strict}, {name}, {answer}",
            ALICE + f"CheckHostIP yes\nStrictHostKeyChecking {strict}\nHostKeyAlias {alias}\n",
            line="gpu-w",
            known=f"{name} {{a}}\n10.7.7.1 {{b}}",
            asked=("host-key",) * (strict == "ask"),
            answers={"host-key": answer},
            expect="alice@10.7.7.1:22 one" if answer == "yes" else "unknown",
        )
        for strict, answer in (
            ("ask", "yes"),
            ("ask", "no"),
            ("yes", "no"),
            ("accept-new", "no"),
            ("no", "yes"),
        )
        for name, alias in (("gpu-w", "gpu-w"), ("farm", "farm"))
    ),
    *(
        Row(
            f"CheckHostIP, {what}, {hashed}",
            ALICE + f"CheckHostIP yes\nStrictHostKeyChecking accept-new\nHashKnownHosts {hashed}\n",
            line=line,
            known=known,
            expect=f"alice@10.7.7.1:{port} one",
        )
        for hashed in ("yes", "no")
        for what, line, known, port in (
            ("both are new", "gpu-w", "", 22),
            ("both are new, with a port", "gpu-w:2201", "", 2201),
            ("the address is new", "gpu-w", "gpu-w {a}", 22),
            ("the address is known", "gpu-w", "gpu-w,10.7.7.1 {a}", 22),
            ("the name is the address", "10.7.7.1", "", 22),
            ("the name is known without its port", "gpu-w:2201", "gpu-w {a}", 2201),
        )
    ),
    alice(
        "CheckHostIP, the name has another key, too",
        "CheckHostIP yes",
        line="gpu-w",
        known="gpu-w,10.7.7.1 {b}",
        expect="changed",
    ),
    alice(
        "CheckHostIP through a ProxyCommand",
        "CheckHostIP yes\nProxyCommand {folder}/pipe %h %p",
        line="gpu-w",
        known="gpu-w {a}\n10.7.7.1 {b}",
    ),
    alice("CheckHostIP no", "CheckHostIP no", line="gpu-w", known="gpu-w {a}\n10.7.7.1 {b}"),
    # Certificates of hosts
    alice(
        "@cert-authority without the port",
        line="gpu-c:2203",
        known="@cert-authority gpu-* {ca}",
    ),
    alice(
        "@cert-authority without the port, behind a jump host",
        "Host gpu-c\nProxyJump gpu-a",
        line="gpu-c:2203",
        known="gpu-a {a}\n@cert-authority gpu-* {ca}",
    ),
    alice(
        "@cert-authority without the port, another key with it",
        line="gpu-c:2203",
        known="@cert-authority gpu-c {ca}\n[gpu-c]:2203 {b}",
    ),
    alice(
        "@revoked authority without the port",
        line="gpu-c:2203",
        known="@cert-authority gpu-c {ca}\n@revoked gpu-c {ca}",
        **ACCEPTED,
    ),
    *(
        Row(
            f"{what}, {then}",
            ALICE + f"StrictHostKeyChecking {strict}\n",
            line=line,
            known=f"@cert-authority * {{ca}}\n{known}",
            asked=("host-key",) * (strict == "ask" and not known),
            answers={"host-key": "yes"},
            expect=expect,
        )
        for what, line, key, address in (
            ("a certificate that has expired", "gpu-e", "e", "127.0.0.7"),
            ("a certificate of another name", "gpu-n", "n", "127.0.0.8"),
        )
        for then, strict, known, expect in (
            ("asked", "ask", "", f"alice@{address}:22 one"),
            ("accept-new", "accept-new", "", f"alice@{address}:22 one"),
            ("strict", "yes", "", "unknown"),
            ("its key is known", "yes", f"{line} {{{key}}}", f"alice@{address}:22 one"),
            ("another key is known", "ask", f"{line} {{b}}", "changed"),
        )
    ),
    # Files of host keys
    Row(
        "UserKnownHostsFile in quotes",
        ALICE + 'UserKnownHostsFile "{home}/known hosts"\n',
        known="",
        files={"known hosts": "gpu-a {a}\n"},
    ),
    Row(
        "UserKnownHostsFile in quotes and another",
        ALICE + 'UserKnownHostsFile "{home}/my known hosts" ~/more\n',
        known="",
        files={"more": "gpu-a {a}\n", "my known hosts": ""},
    ),
    alice(
        "UserKnownHostsFile, relative",
        "UserKnownHostsFile here",
        known="",
        files={"here": "gpu-a {a}\n"},
    ),
    Row(
        "UserKnownHostsFile, relative and in quotes",
        ALICE + 'UserKnownHostsFile first "last of all"\n',
        known="",
        files={"last of all": "gpu-a {a}\n"},
    ),
    alice(
        "UserKnownHostsFile in a folder that is not there",
        "UserKnownHostsFile {home}/none/known",
        known="",
        untouched="none",
        **ACCEPTED,
    ),
    alice(
        "UserKnownHostsFile none",
        "UserKnownHostsFile none\nStrictHostKeyChecking accept-new",
        known="",
        expect="unknown",
    ),
    alice(
        "UserKnownHostsFile /dev/null",
        "UserKnownHostsFile /dev/null\nStrictHostKeyChecking accept-new",
        known="",
    ),
    alice(
        "no, changed, a key without a port is known",
        "StrictHostKeyChecking no",
        line="gpu-a:2201",
        known="[gpu-a]:2201 {b}\ngpu-a {a}",
    ),
    # Keys to log in with
    Row("IdentityFile with tokens", "User alice\nIdentityFile {keys}/%r-key\n", expect="alice two"),
    Row(
        "IdentityFile by a variable",
        "User alice\nIdentityFile ${{KEYS}}/one\n",
        environ={"KEYS": "{keys}"},
    ),
    Row(
        "the first that is let in",
        "User alice\nIdentityFile {keys}/three\nIdentityFile {keys}/two\n",
        expect="alice two",
    ),
    Row(
        "the agent's come first",
        "User alice\nIdentityFile {keys}/one\n",
        environ=AGENT,
        expect="alice two",
    ),
    alice("IdentitiesOnly", environ=AGENT),
    Row(
        "a public file, the key in the agent",
        "User alice\nIdentityFile {keys}/two.pub\nIdentitiesOnly yes\n",
        environ=AGENT,
        expect="alice two",
    ),
    Row("IdentityAgent", "User alice\nIdentityAgent {agent}\n", expect="alice two"),
    Row("IdentityAgent none", "User alice\nIdentityAgent none\n", environ=AGENT, expect="login"),
    alice("an agent that is gone", environ={"SSH_AUTH_SOCK": "/nowhere"}),
    Row(
        "CertificateFile",
        "User bob\nIdentitiesOnly yes\n"
        "IdentityFile {keys}/two\nCertificateFile {keys}/bob-cert.pub\n",
        expect="bob bob-cert",
    ),
    Row(
        "a certificate beside the key",
        "User bob\nIdentityFile {keys}/certified\nIdentitiesOnly yes\n",
        expect="bob certified-cert",
    ),
    Row(
        "a certificate for a key in the agent",
        "User bob\nCertificateFile {keys}/bob-cert.pub\n",
        environ=AGENT,
        expect="bob bob-cert",
    ),
    Row(
        "a key that is not there",
        "User alice\nIdentityFile {keys}/nothing\nIdentityFile {keys}/one\n",
    ),
    Row("a file that is no key", "User alice\nIdentityFile /etc/hosts\nIdentityFile {keys}/one\n"),
    Row(
        "a key that others can read",
        "User alice\nIdentityFile {keys}/open\nIdentityFile {keys}/one\nIdentitiesOnly yes\n",
    ),
    Row(
        "a key that others can read, alone",
        "User alice\nIdentityFile {keys}/open\nIdentitiesOnly yes\n",
        expect="login",
    ),
    Row(
        "a passphrase",
        "User alice\nIdentityFile {keys}/locked\nIdentitiesOnly yes\n",
        answers={"passphrase": "open"},
        asked=("passphrase",),
        expect="alice locked",
    ),
    Row(
        "a wrong passphrase, then the next key",
        "User alice\nIdentityFile {keys}/locked\nIdentityFile {keys}/one\nIdentitiesOnly yes\n",
        answers={"passphrase": "wrong"},
        asked=("passphrase",) * 3,
    ),
    Row(
        "a locked key that is not let in is not asked about",
        "User root\nIdentityFile {keys}/locked\nIdentityFile {keys}/one\nIdentitiesOnly yes\n",
        expect="root one",
    ),
    alice("PubkeyAuthentication no", "PubkeyAuthentication no", expect="login"),
    alice("PubkeyAcceptedAlgorithms", "PubkeyAcceptedAlgorithms rsa-sha2-512", expect="login"),
    Row(
        "a password",
        "User alice\nPreferredAuthentications password\n",
        line="gpu-p",
        expect="alice password",
        **PASSWORD,
    ),
    Row(
        "keyboard-interactive",
        "User alice\n",
        line="gpu-p",
        expect="alice keyboard-interactive/pam",
        **PASSWORD,
    ),
    Row(
        "a wrong password",
        "User alice\nPreferredAuthentications password\nNumberOfPasswordPrompts 1\n",
        line="gpu-p",
        answers={"password": "wrong"},
        asked=("password",),
        expect="login",
    ),
    Row(
        "BatchMode",
        "User alice\nBatchMode yes\n",
        line="gpu-p",
        answers={"password": "sesame"},
        expect="login",
    ),
    Row(
        "PasswordAuthentication no",
        "User alice\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        line="gpu-p",
        answers={"password": "sesame"},
        expect="login",
    ),
    # Too many keys
    *(
        Row(
            f"12 keys in the agent, three tries: {what}",
            f"User {user}\n{lines}\n",
            line="gpu-m",
            environ={"SSH_AUTH_SOCK": "{full}"},
            expect=f"{user}@127.0.0.9:22 {expect}" if expect != "login" else expect,
        )
        for what, user, lines, expect in (
            (
                "CertificateFile",
                "bob",
                "IdentityFile {keys}/two\nCertificateFile {keys}/bob-cert.pub",
                "bob-cert",
            ),
            (
                "CertificateFile, the key in a file",
                "bob",
                "IdentityFile {keys}/certified\nCertificateFile {keys}/certified-cert.pub",
                "certified-cert",
            ),
            ("IdentityFile", "alice", "IdentityFile {keys}/one", "login"),
            (
                "wrong files first",
                "alice",
                "IdentityFile {keys}/three\nIdentityFile {keys}/certified\n"
                "IdentityFile {keys}/other-1\nIdentityFile {keys}/one",
                "login",
            ),
            ("IdentitiesOnly", "alice", "IdentityFile {keys}/one\nIdentitiesOnly yes", "one"),
            ("the file of the last one", "alice", "IdentityFile {keys}/two", "two"),
            ("its public file", "alice", "IdentityFile {keys}/two.pub", "two"),
            (
                "four files and IdentitiesOnly",
                "alice",
                "IdentityFile {keys}/three\nIdentityFile {keys}/certified\nIdentitiesOnly yes\n"
                "IdentityFile {keys}/other-1\nIdentityFile {keys}/one",
                "login",
            ),
        )
    ),
    # Passphrases of other formats, without a public key to show first
    *(
        Row(
            f"{name} with a passphrase, {what}",
            f"User alice\nIdentityFile {{keys}}/{name}\nIdentityFile {{keys}}/one\n"
            "IdentitiesOnly yes\n",
            answers={"passphrase": answer},
            asked=("passphrase",) * times,
            expect=f"alice@127.0.0.1:22 {key}",
        )
        for name in ("pem", "pkcs8")
        for what, answer, times, key in (
            ("right", "sesame", 1, name),
            ("wrong", "open", 3, "one"),
            ("none", "", 1, "one"),
        )
    ),
    Row(
        "pem with a passphrase, after a key that is let in",
        "User alice\nIdentityFile {keys}/one\nIdentityFile {keys}/pem\nIdentitiesOnly yes\n",
    ),
    Row(
        "pem with a passphrase, BatchMode",
        "User alice\nIdentityFile {keys}/pem\nIdentityFile {keys}/one\n"
        "IdentitiesOnly yes\nBatchMode yes\n",
    ),
    # Several rounds
    *(
        Row(
            f"keyboard-interactive in {rounds} rounds, NumberOfPasswordPrompts {tries}, {then}",
            f"Host gpu-k\nUser {user}\nNumberOfPasswordPrompts {tries}\n",
            line="gpu-k",
            answers={"password": answer},
            asked=("password",) * (rounds if answer == "sesame" else tries),
            expect=f"{user}@127.0.0.11:22 keyboard-interactive" if then == "in" else "login",
        )
        for user, rounds in (("alice", 3), ("bob", 5))
        for tries in (1, 3)
        for then, answer in (("in", "sesame"), ("refused", "wrong"))
    ),
    Row(
        "keyboard-interactive in 3 rounds, on a jump host",
        "NumberOfPasswordPrompts 1\n" + ALICE + "Host gpu-b\nProxyJump gpu-k\n",
        line="gpu-b",
        answers={"password": "sesame"},
        asked=("password",) * 3,
    ),
    # Nothing to log in with
    Row(
        "a server that asks for no login",
        "Host gpu-k\nUser guest\n",
        line="gpu-k",
        expect="guest keyboard-interactive",
    ),
    Row(
        "a server that asks for no login, another key is known",
        "Host gpu-k\nUser guest\n",
        line="gpu-k",
        known="gpu-k {b}",
        expect="changed",
    ),
    Row(
        "a server that asks for no login, its key is not known",
        "Host gpu-k\nUser guest\nStrictHostKeyChecking yes\n",
        line="gpu-k",
        known="",
        expect="unknown",
    ),
    # What takes its time
    Row("Match exec that takes its time", 'Match exec "sleep 3"\n' + ALICE, stage_s=1),
    alice("a server that decides slowly", line="gpu-s", stage_s=1),
    alice("an agent that answers slowly", environ={"SSH_AUTH_SOCK": "{slow}"}, stage_s=1),
    Row(
        "an agent that answers slowly, without IdentitiesOnly",
        "User alice\nIdentityFile {keys}/one\n",
        environ={"SSH_AUTH_SOCK": "{slow}"},
        stage_s=1,
    ),
    alice(
        "KnownHostsCommand that takes its time",
        "KnownHostsCommand {folder}/slow-known %H",
        known="",
        stage_s=1,
    ),
    # What a person's own session is for
    alice("ControlMaster", "ControlMaster auto\nControlPath {home}/cm-%C"),
    alice("RemoteCommand", "RemoteCommand echo hello"),
    alice("RequestTTY", "RequestTTY force"),
    alice("LocalForward", "LocalForward 8001 127.0.0.1:22"),
    alice(
        "PermitLocalCommand",
        "PermitLocalCommand yes\nLocalCommand touch {home}/made",
        untouched="made",
    ),
    alice("ForwardAgent and X11", "ForwardAgent yes\nForwardX11 yes", environ=AGENT),
    alice("Compression", "Compression yes"),
    # Algorithms
    alice("algorithms that ssh refuses", line="gpu-o", expect="algorithms"),
    alice(
        "added with +",
        "KexAlgorithms +diffie-hellman-group14-sha1\nCiphers +aes128-cbc",
        line="gpu-o",
    ),
    alice(
        "put first with ^",
        "KexAlgorithms ^diffie-hellman-group14-sha1\nCiphers ^aes128-cbc",
        line="gpu-o",
    ),
    alice("taken out with -", "HostKeyAlgorithms -ssh-ed25519*", expect="algorithms"),
    alice("one cipher", "Ciphers aes256-gcm@openssh.com"),
)
