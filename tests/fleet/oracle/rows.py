"""The table: one SSH configuration a row, and what ssh and gputui must both make of it.

Names: gpu-a, gpu-b, gpu-c (its host key has a certificate), gpu-p (passwords only, through PAM),
gpu-o (algorithms of long ago) and gpu-r (an RSA host key), each an sshd of its own. Keys: one and
two let alice in, one lets root in, three bob; `locked` is one of alice's with a passphrase.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

ALICE_KEY = "IdentityFile {keys}/one\nIdentitiesOnly yes\n"
ALICE = f"User alice\n{ALICE_KEY}"

ADDRESSES = {
    "gpu-a:2201": "127.0.0.1:2201",
    "gpu-b": "127.0.0.2:22",
    "gpu-b:22": "127.0.0.2:22",
    "gpu-c": "127.0.0.3:22",
}
"""Line of a hosts file → where it leads, unless to gpu-a's usual port."""


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration."""

    name: str
    config: str = ""
    """~/.ssh/config; `{keys}`, `{home}` and `{folder}` are filled in."""
    expect: str = ""
    """`user@address:port key`, or why not; "" for alice and her key `one` on the line's host."""
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
        """What both clients are to come to."""
        return self.expect or f"alice@{ADDRESSES.get(self.line, '127.0.0.1:22')} one"


ROWS = (
    # Where the configuration is
    Row("no configuration", expect="root@127.0.0.1:22 one", files={".ssh/id_ed25519": "{one}"}),
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
    Row("the first value counts", ALICE + "Host *\nUser bob\nPort 22\n"),
    Row("an option that does not exist", "Frobnicate yes\n", expect="configuration"),
    # Where to
    Row("HostName with %h", "Host a\nHostName gpu-%h\n" + ALICE, line="a"),
    Row("Port", ALICE + "Port 2201\n", expect="alice@127.0.0.1:2201 one"),
    Row("the port of the line", ALICE, line="gpu-a:2201"),
    Row(
        "two ports of one gateway",
        ALICE,
        line="gpu-a:2201 ; gpu-a",
        expect="alice@127.0.0.1:2201 one",
    ),
    Row("User", "User bob\nIdentityFile {keys}/three\n", expect="bob@127.0.0.1:22 three"),
    Row("the user of the line", "User bob\nIdentityFile {keys}/one\n", line="alice@gpu-a"),
    Row(
        "AddressFamily inet6",
        ALICE + "AddressFamily inet6\n",
        line="gpu-6",
        expect="alice@::1:22 one",
    ),
    Row("AddressFamily inet", ALICE + "AddressFamily inet\n", line="gpu-6"),
    Row("an IPv6 address", ALICE, line="::1", expect="alice@::1:22 one"),
    Row("an IPv6 address and port", ALICE, line="[::1]:2201", expect="alice@::1:2201 one"),
    Row("a name whose first address refuses", ALICE, line="gpu-many"),
    Row("a name that is not there", ALICE, line="gpu-none", expect="unresolved"),
    Row("a port that refuses", ALICE, line="gpu-a:9", expect="refused"),
    Row(
        "BindAddress",
        ALICE + "BindAddress 127.0.0.77\n",
        expect="alice@127.0.0.1:22 one from 127.0.0.77",
    ),
    Row("BindInterface", ALICE + "BindInterface lo\n"),
    Row(
        "CanonicalizeHostname",
        "CanonicalizeHostname yes\nCanonicalDomains lab\nHost x.lab\n" + ALICE,
        line="x",
    ),
    Row(
        "SetEnv and SendEnv",
        ALICE + "SendEnv LC_THIS\nSetEnv LC_THAT=b\n",
        environ={"LC_THIS": "a"},
    ),
    # Through others
    Row("ProxyJump", ALICE + "Host gpu-b\nProxyJump gpu-a\n", line="gpu-b"),
    Row(
        "ProxyJump with user and port",
        ALICE + "Host gpu-b\nProxyJump alice@gpu-a:2201\n",
        line="gpu-b",
    ),
    Row("ProxyJump, a chain", ALICE + "Host gpu-c\nProxyJump gpu-a,gpu-b\n", line="gpu-c"),
    Row(
        "ProxyJump of a ProxyJump",
        ALICE + "Host gpu-c\nProxyJump gpu-b\nHost gpu-b\nProxyJump gpu-a\n",
        line="gpu-c",
    ),
    Row("ProxyJump none", ALICE + "Host gpu-a\nProxyJump none\nHost *\nProxyJump gpu-none\n"),
    Row("Host * with ProxyJump", ALICE + "Host *\nProxyJump gpu-b\n", expect="loop"),
    Row(
        "a jump host that refuses the key",
        "Host gpu-b\nProxyJump gpu-a\n" + ALICE + "Host gpu-a\nIdentityFile {keys}/three\n"
        "User alice\nIdentitiesOnly yes\n",
        line="gpu-b",
        expect="login",
    ),
    Row("ProxyCommand", ALICE + "ProxyCommand {folder}/pipe %h %p\n"),
    Row("ProxyCommand of a shell", ALICE + "ProxyCommand sh -c '{folder}/pipe %h %p' # %n\n"),
    Row("ProxyCommand that fails", ALICE + "ProxyCommand false\n", expect="proxy"),
    Row("ProxyCommand none", ALICE + "ProxyCommand none\n"),
    # Host keys
    Row("a changed host key", ALICE, known="gpu-a {b}", expect="changed"),
    Row(
        "a changed key, the address is known",
        ALICE,
        known="127.0.0.1 {a}\ngpu-a {b}",
        expect="changed",
    ),
    Row("a changed key of another kind", ALICE, known="gpu-a {r}", expect="changed"),
    Row(
        "an unknown host key, asked",
        ALICE,
        known="",
        asked=("host-key",),
        answers={"host-key": "yes"},
    ),
    Row("an unknown host key, refused", ALICE, known="", asked=("host-key",), expect="unknown"),
    Row(
        "only the address is known",
        ALICE,
        known="127.0.0.1 {a}",
        asked=("host-key",),
        expect="unknown",
    ),
    Row("a known name without its port", ALICE, line="gpu-a:2201", known="gpu-a {a}"),
    Row(
        "another key without its port",
        ALICE,
        line="gpu-a:2201",
        known="gpu-a {b}",
        asked=("host-key",),
        expect="unknown",
    ),
    Row("a name in capitals", ALICE, line="GPU-A"),
    Row(
        "StrictHostKeyChecking yes",
        ALICE + "StrictHostKeyChecking yes\n",
        known="",
        expect="unknown",
    ),
    Row("StrictHostKeyChecking accept-new", ALICE + "StrictHostKeyChecking accept-new\n", known=""),
    Row(
        "accept-new, changed",
        ALICE + "StrictHostKeyChecking accept-new\n",
        known="gpu-a {b}",
        expect="changed",
    ),
    Row("StrictHostKeyChecking no", ALICE + "StrictHostKeyChecking no\n", known=""),
    Row("no, changed", ALICE + "StrictHostKeyChecking no\n", known="gpu-a {b}"),
    Row(
        "no, changed: no password is sent",
        "User alice\nStrictHostKeyChecking no\n",
        line="gpu-p",
        known="gpu-p {b}",
        answers={"password": "sesame"},
        expect="login",
    ),
    Row("no, revoked", ALICE + "StrictHostKeyChecking no\n", known="gpu-a {a}\n@revoked gpu-a {a}"),
    Row(
        "no, RevokedHostKeys",
        ALICE + "StrictHostKeyChecking no\nRevokedHostKeys {home}/revoked\n",
        files={"revoked": "{a}\n"},
        expect="revoked",
    ),
    Row("HostKeyAlias", ALICE + "HostKeyAlias farm\n", known="farm {a}"),
    Row(
        "HostKeyAlias and a port",
        ALICE + "HostKeyAlias farm\n",
        line="gpu-a:2201",
        known="farm {a}",
    ),
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
        asked=("host-key",),
        expect="unknown",
    ),
    Row("a hashed entry", ALICE, known="{hashed gpu-a} {a}"),
    Row("a hashed entry with a port", ALICE, line="gpu-a:2201", known="{hashed [gpu-a]:2201} {a}"),
    Row(
        "HashKnownHosts", ALICE + "HashKnownHosts yes\nStrictHostKeyChecking accept-new\n", known=""
    ),
    Row(
        "UserKnownHostsFile",
        ALICE + "UserKnownHostsFile ~/.ssh/other-%h\n",
        known="",
        files={".ssh/other-gpu-a": "gpu-a {a}\n"},
    ),
    Row(
        "GlobalKnownHostsFile",
        ALICE + "GlobalKnownHostsFile {home}/all\n",
        known="",
        files={"all": "gpu-* {a}\n"},
    ),
    Row("@cert-authority", ALICE, line="gpu-c", known="@cert-authority gpu-* {ca}"),
    Row(
        "@cert-authority for another name",
        ALICE,
        line="gpu-c",
        known="@cert-authority web-* {ca}",
        asked=("host-key",),
        expect="unknown",
    ),
    Row(
        "another authority, its key is known",
        ALICE,
        line="gpu-c",
        known="@cert-authority * {a}\ngpu-c {c}",
    ),
    Row(
        "a certificate for another host",
        "HostName gpu-c\nHost y\n" + ALICE,
        line="y",
        expect="alice@127.0.0.3:22 one",
        known="@cert-authority * {ca}",
    ),
    Row("@revoked", ALICE, known="gpu-a {a}\n@revoked gpu-a {a}", expect="revoked"),
    Row("@revoked for every name", ALICE, known="gpu-a {a}\n@revoked * {a}", expect="revoked"),
    Row(
        "@revoked with a port",
        ALICE,
        line="gpu-a:2201",
        known="[gpu-a]:2201 {a}\n@revoked [gpu-a]:2201 {a}",
        expect="revoked",
    ),
    Row(
        "@revoked authority",
        ALICE,
        line="gpu-c",
        known="@cert-authority * {ca}\n@revoked * {ca}",
        expect="revoked",
    ),
    Row(
        "@revoked key with a certificate",
        ALICE,
        line="gpu-c",
        known="@cert-authority * {ca}\n@revoked * {c}",
        expect="revoked",
    ),
    Row(
        "RevokedHostKeys",
        ALICE + "RevokedHostKeys {home}/revoked\n",
        files={"revoked": "{a}\n"},
        expect="revoked",
    ),
    Row(
        "RevokedHostKeys, another's",
        ALICE + "RevokedHostKeys {home}/revoked\n",
        files={"revoked": "{b}\n"},
    ),
    Row(
        "RevokedHostKeys that is not there",
        ALICE + "RevokedHostKeys {home}/revoked\n",
        expect="revoked",
    ),
    Row(
        "RevokedHostKeys, a KRL",
        ALICE + "StrictHostKeyChecking no\nRevokedHostKeys {folder}/krl-key\n",
        expect="revoked",
    ),
    Row("RevokedHostKeys, another's KRL", ALICE + "RevokedHostKeys {folder}/krl-serial\n"),
    Row(
        "RevokedHostKeys, a KRL, for an unknown key",
        ALICE + "RevokedHostKeys {folder}/krl-serial\n",
        known="",
        answers={"host-key": "yes"},
        asked=("host-key",),
    ),
    Row(
        "RevokedHostKeys, a certificate in a KRL",
        ALICE + "RevokedHostKeys {folder}/krl-serial\n",
        line="gpu-c",
        known="@cert-authority * {ca}",
        expect="revoked",
    ),
    Row(
        "RevokedHostKeys, a KRL without this certificate",
        ALICE + "RevokedHostKeys {folder}/krl-key\n",
        line="gpu-c",
        known="@cert-authority * {ca}",
    ),
    Row(
        "RevokedHostKeys, a KRL that is cut",
        ALICE + "RevokedHostKeys {folder}/krl-cut\n",
        expect="revoked",
    ),
    Row(
        "CASignatureAlgorithms without the authority's",
        ALICE + "CASignatureAlgorithms rsa-sha2-512\n",
        line="gpu-c",
        known="@cert-authority * {ca}",
        asked=("host-key",),
        expect="unknown",
    ),
    Row(
        "CASignatureAlgorithms with it",
        ALICE + "CASignatureAlgorithms rsa-sha2-512,ssh-ed25519\n",
        line="gpu-c",
        known="@cert-authority * {ca}",
    ),
    Row(
        "another authority, its key is not known",
        ALICE,
        line="gpu-c",
        known="@cert-authority * {a}",
        asked=("host-key",),
        expect="unknown",
    ),
    Row("HostbasedAuthentication", ALICE + "HostbasedAuthentication yes\n"),
    Row(
        "HostbasedAuthentication with EnableSSHKeysign",
        ALICE + "HostbasedAuthentication yes\n",
        line="gpu-h",
        system="EnableSSHKeysign yes\n",
        expect="alice@127.0.0.12:22 hostbased",
    ),
    Row(
        "HostbasedAuthentication without EnableSSHKeysign, then the key",
        ALICE + "HostbasedAuthentication yes\n",
        line="gpu-h",
        expect="alice@127.0.0.12:22 one",
    ),
    Row(
        "HostbasedAuthentication that the server does not allow, then the key",
        ALICE + "HostbasedAuthentication yes\n",
        system="EnableSSHKeysign yes\n",
    ),
    Row(
        "HostbasedAuthentication, publickey preferred",
        ALICE + "HostbasedAuthentication yes\nPreferredAuthentications publickey,hostbased\n",
        line="gpu-h",
        system="EnableSSHKeysign yes\n",
        expect="alice@127.0.0.12:22 one",
    ),
    Row(
        "GSSAPIAuthentication with a ticket",
        ALICE + "GSSAPIAuthentication yes\n",
        line="gpu-h",
        expect="alice@127.0.0.12:22 gssapi-with-mic",
        kerberos=True,
    ),
    Row(
        "GSSAPIAuthentication without a ticket, then the key",
        ALICE + "GSSAPIAuthentication yes\n",
        line="gpu-h",
        environ={"KRB5CCNAME": "FILE:{folder}/no-ticket"},
        expect="alice@127.0.0.12:22 one",
        kerberos=True,
    ),
    Row(
        "GSSAPIAuthentication of another user's ticket, then the key",
        "User bob\nIdentityFile {keys}/three\nIdentitiesOnly yes\nGSSAPIAuthentication yes\n",
        line="gpu-h",
        expect="bob@127.0.0.12:22 three",
        kerberos=True,
    ),
    Row(
        "GSSAPIAuthentication that the server does not allow, then the key",
        ALICE + "GSSAPIAuthentication yes\n",
        kerberos=True,
    ),
    Row("KnownHostsCommand", ALICE + "KnownHostsCommand {folder}/known %H\n", known=""),
    Row(
        "KnownHostsCommand by the key",
        ALICE + "KnownHostsCommand {folder}/known-key %I %t %K %H\n",
        known="",
    ),
    Row(
        "KnownHostsCommand that fails for the key",
        ALICE + "KnownHostsCommand {folder}/known-half %I\n",
        known="",
        expect="unknown",
    ),
    Row("KnownHostsCommand that fails", ALICE + "KnownHostsCommand /bin/false\n", expect="unknown"),
    Row("RequiredRSASize", ALICE + "RequiredRSASize 3072\n", line="gpu-r", expect="weak"),
    Row(
        "NoHostAuthenticationForLocalhost",
        ALICE + "NoHostAuthenticationForLocalhost yes\n",
        known="",
    ),
    Row("a line that cannot be read", ALICE, known="gpu-a\n@what gpu-a x\ngpu-a {a}"),
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
    Row(
        "ProxyJump with tokens, two",
        ALICE + "Host gpu-b\nProxyJump %r@gpu-c,%r@gpu-a\n",
        line="gpu-b",
    ),
    Row(
        "ProxyCommand of an ssh that asks for a password",
        ALICE + "Host gpu-b\nProxyCommand ssh -W %h:%p gpu-p\n",
        line="gpu-b",
        answers={"password": "sesame"},
        asked=("password",),
    ),
    Row(
        "ProxyCommand of an ssh that asks about a host key",
        ALICE + "Host gpu-b\nProxyCommand ssh -W %h:%p gpu-a\n",
        line="gpu-b",
        known="gpu-b {b}",
        answers={"host-key": "yes"},
        asked=("host-key",),
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
        expect="alice@127.0.0.4:22 password",
    ),
    Row(
        "a ControlMaster that is there, for commands in the background",
        "Host gpu-p\nUser alice\nControlPath {master}\n"
        "ForkAfterAuthentication yes\nStdinNull yes\n",
        line="gpu-p",
        expect="alice@127.0.0.4:22 password",
    ),
    Row(
        "a ControlMaster that is there, behind a jump host that is not",
        "Host gpu-p\nUser alice\nControlPath {master}\nProxyJump gpu-none\n",
        line="gpu-p",
        expect="alice@127.0.0.4:22 password",
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
    Row("a ControlMaster that is gone", ALICE + "ControlPath {folder}/no-master\n"),
    Row("ControlPath without a socket", ALICE + "ControlPath {home}/%C\n"),
    # What a session is
    Row("ForkAfterAuthentication", ALICE + "ForkAfterAuthentication yes\n"),
    Row("StdinNull", ALICE + "StdinNull yes\n"),
    Row("SessionType none", ALICE + "SessionType none\n"),
    Row("SessionType subsystem", ALICE + "SessionType subsystem\n"),
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
    Row("a user with an @", ALICE_KEY, line="me@corp@gpu-a", expect="me@corp@127.0.0.1:22 one"),
    Row(
        "a user with a backslash",
        ALICE_KEY,
        line=r"CORP\me@gpu-a",
        expect=r"CORP\me@127.0.0.1:22 one",
    ),
    *(
        Row(f"a host called {name}", f"Host {name}\nHostName gpu-a\n" + ALICE, line=name)
        for name in ("_gpu", "gpu-a-", "gpu_1-", "müller", "MÜLLER", "x.", "日本")
    ),
    Row(
        "a host called müller in a pattern", "Host m?*ller\nHostName gpu-a\n" + ALICE, line="müller"
    ),
    Row("%C of KnownHostsCommand", ALICE + "KnownHostsCommand {folder}/known-c %C %I %H\n"),
    Row(
        "%C of KnownHostsCommand through a jump host",
        ALICE + "Host gpu-b\nProxyJump gpu-a\nKnownHostsCommand {folder}/known-c %C %I %H\n",
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
    Row(
        "CheckHostIP, the name has another key, too",
        ALICE + "CheckHostIP yes\n",
        line="gpu-w",
        known="gpu-w,10.7.7.1 {b}",
        expect="changed",
    ),
    Row(
        "CheckHostIP through a ProxyCommand",
        ALICE + "CheckHostIP yes\nProxyCommand {folder}/pipe %h %p\n",
        line="gpu-w",
        known="gpu-w {a}\n10.7.7.1 {b}",
        expect="alice@10.7.7.1:22 one",
    ),
    Row(
        "CheckHostIP no",
        ALICE + "CheckHostIP no\n",
        line="gpu-w",
        known="gpu-w {a}\n10.7.7.1 {b}",
        expect="alice@10.7.7.1:22 one",
    ),
    # Certificates of hosts
    Row(
        "@cert-authority without the port",
        ALICE,
        line="gpu-c:2203",
        known="@cert-authority gpu-* {ca}",
        expect="alice@127.0.0.3:2203 one",
    ),
    Row(
        "@cert-authority without the port, behind a jump host",
        ALICE + "Host gpu-c\nProxyJump gpu-a\n",
        line="gpu-c:2203",
        known="gpu-a {a}\n@cert-authority gpu-* {ca}",
        expect="alice@127.0.0.3:2203 one",
    ),
    Row(
        "@cert-authority without the port, another key with it",
        ALICE,
        line="gpu-c:2203",
        known="@cert-authority gpu-c {ca}\n[gpu-c]:2203 {b}",
        expect="alice@127.0.0.3:2203 one",
    ),
    Row(
        "@revoked authority without the port",
        ALICE,
        line="gpu-c:2203",
        known="@cert-authority gpu-c {ca}\n@revoked gpu-c {ca}",
        asked=("host-key",),
        answers={"host-key": "yes"},
        expect="alice@127.0.0.3:2203 one",
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
    Row(
        "UserKnownHostsFile, relative",
        ALICE + "UserKnownHostsFile here\n",
        known="",
        files={"here": "gpu-a {a}\n"},
    ),
    Row(
        "UserKnownHostsFile, relative and in quotes",
        ALICE + 'UserKnownHostsFile first "last of all"\n',
        known="",
        files={"last of all": "gpu-a {a}\n"},
    ),
    Row(
        "UserKnownHostsFile in a folder that is not there",
        ALICE + "UserKnownHostsFile {home}/none/known\n",
        known="",
        asked=("host-key",),
        answers={"host-key": "yes"},
        untouched="none",
    ),
    Row(
        "UserKnownHostsFile none",
        ALICE + "UserKnownHostsFile none\nStrictHostKeyChecking accept-new\n",
        known="",
        expect="unknown",
    ),
    Row(
        "UserKnownHostsFile /dev/null",
        ALICE + "UserKnownHostsFile /dev/null\nStrictHostKeyChecking accept-new\n",
        known="",
    ),
    Row(
        "no, changed, a key without a port is known",
        ALICE + "StrictHostKeyChecking no\n",
        line="gpu-a:2201",
        known="[gpu-a]:2201 {b}\ngpu-a {a}",
    ),
    # Keys to log in with
    Row(
        "IdentityFile with tokens",
        "User alice\nIdentityFile {keys}/%r-key\n",
        expect="alice@127.0.0.1:22 two",
    ),
    Row(
        "IdentityFile by a variable",
        "User alice\nIdentityFile ${{KEYS}}/one\n",
        environ={"KEYS": "{keys}"},
    ),
    Row(
        "the first that is let in",
        "User alice\nIdentityFile {keys}/three\nIdentityFile {keys}/two\n",
        expect="alice@127.0.0.1:22 two",
    ),
    Row(
        "the agent's come first",
        "User alice\nIdentityFile {keys}/one\n",
        environ={"SSH_AUTH_SOCK": "{agent}"},
        expect="alice@127.0.0.1:22 two",
    ),
    Row("IdentitiesOnly", ALICE, environ={"SSH_AUTH_SOCK": "{agent}"}),
    Row(
        "a public file, the key in the agent",
        "User alice\nIdentityFile {keys}/two.pub\nIdentitiesOnly yes\n",
        environ={"SSH_AUTH_SOCK": "{agent}"},
        expect="alice@127.0.0.1:22 two",
    ),
    Row("IdentityAgent", "User alice\nIdentityAgent {agent}\n", expect="alice@127.0.0.1:22 two"),
    Row(
        "IdentityAgent none",
        "User alice\nIdentityAgent none\n",
        environ={"SSH_AUTH_SOCK": "{agent}"},
        expect="login",
    ),
    Row("an agent that is gone", ALICE, environ={"SSH_AUTH_SOCK": "/nowhere"}),
    Row(
        "CertificateFile",
        "User bob\nIdentitiesOnly yes\n"
        "IdentityFile {keys}/two\nCertificateFile {keys}/bob-cert.pub\n",
        expect="bob@127.0.0.1:22 bob-cert",
    ),
    Row(
        "a certificate beside the key",
        "User bob\nIdentityFile {keys}/certified\nIdentitiesOnly yes\n",
        expect="bob@127.0.0.1:22 certified-cert",
    ),
    Row(
        "a certificate for a key in the agent",
        "User bob\nCertificateFile {keys}/bob-cert.pub\n",
        environ={"SSH_AUTH_SOCK": "{agent}"},
        expect="bob@127.0.0.1:22 bob-cert",
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
        expect="alice@127.0.0.1:22 locked",
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
        expect="root@127.0.0.1:22 one",
    ),
    Row("PubkeyAuthentication no", ALICE + "PubkeyAuthentication no\n", expect="login"),
    Row(
        "PubkeyAcceptedAlgorithms",
        ALICE + "PubkeyAcceptedAlgorithms rsa-sha2-512\n",
        expect="login",
    ),
    Row(
        "a password",
        "User alice\nPreferredAuthentications password\n",
        line="gpu-p",
        answers={"password": "sesame"},
        asked=("password",),
        expect="alice@127.0.0.4:22 password",
    ),
    Row(
        "keyboard-interactive",
        "User alice\n",
        line="gpu-p",
        answers={"password": "sesame"},
        asked=("password",),
        expect="alice@127.0.0.4:22 keyboard-interactive/pam",
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
        expect="guest@127.0.0.11:22 keyboard-interactive",
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
    Row(
        "a server that decides slowly",
        ALICE,
        line="gpu-s",
        stage_s=1,
        expect="alice@127.0.0.10:22 one",
    ),
    Row("an agent that answers slowly", ALICE, environ={"SSH_AUTH_SOCK": "{slow}"}, stage_s=1),
    Row(
        "an agent that answers slowly, without IdentitiesOnly",
        "User alice\nIdentityFile {keys}/one\n",
        environ={"SSH_AUTH_SOCK": "{slow}"},
        stage_s=1,
    ),
    Row(
        "KnownHostsCommand that takes its time",
        ALICE + "KnownHostsCommand {folder}/slow-known %H\n",
        known="",
        stage_s=1,
    ),
    # What a person's own session is for
    Row("ControlMaster", ALICE + "ControlMaster auto\nControlPath {home}/cm-%C\n"),
    Row("RemoteCommand", ALICE + "RemoteCommand echo hello\n"),
    Row("RequestTTY", ALICE + "RequestTTY force\n"),
    Row("LocalForward", ALICE + "LocalForward 8001 127.0.0.1:22\n"),
    Row(
        "PermitLocalCommand",
        ALICE + "PermitLocalCommand yes\nLocalCommand touch {home}/made\n",
        untouched="made",
    ),
    Row(
        "ForwardAgent and X11",
        ALICE + "ForwardAgent yes\nForwardX11 yes\n",
        environ={"SSH_AUTH_SOCK": "{agent}"},
    ),
    Row("Compression", ALICE + "Compression yes\n"),
    # Algorithms
    Row("algorithms that ssh refuses", ALICE, line="gpu-o", expect="algorithms"),
    Row(
        "added with +",
        ALICE + "KexAlgorithms +diffie-hellman-group14-sha1\nCiphers +aes128-cbc\n",
        line="gpu-o",
        expect="alice@127.0.0.5:22 one",
    ),
    Row(
        "put first with ^",
        ALICE + "KexAlgorithms ^diffie-hellman-group14-sha1\nCiphers ^aes128-cbc\n",
        line="gpu-o",
        expect="alice@127.0.0.5:22 one",
    ),
    Row("taken out with -", ALICE + "HostKeyAlgorithms -ssh-ed25519*\n", expect="algorithms"),
    Row("one cipher", ALICE + "Ciphers aes256-gcm@openssh.com\n"),
)
