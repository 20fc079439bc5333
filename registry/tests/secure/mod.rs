//! What the store grants which client, seen from another machine: TLS with certificates made for the test, asked by
//! Redis's own programs and by OpenSSL; and the defaults of a store without configuration.

use super::{Folder, ask, namespace, output_of, served};
use clap::{Args, Command as Words, FromArgMatches};
use laneway_kinds::{AppCommand, Failure, On};
use laneway_kv::{KvArguments, KvKind};
use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair};
use laneway_registry::{Lanes, facts_of};
use laneway_spec::LaneSpec;
use laneway_testkit::{Authority, skip};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NEAR: &str = "10.77.0.1";

/// Two machines and a cable. The near end has an address by the kernel, or leaves it to a stack.
fn machines(is_kernels: bool) -> Option<(Namespace, Namespace, VethPair)> {
    let (near, far) = (namespace("near")?, namespace("far")?);
    let own: &[&str] = if is_kernels { &["10.77.0.1/24"] } else { &[] };
    let mut options = VethOptions {
        a: VethEnd::new(Mac([2, 0, 0, 0, 0, 1]), own).expect("an address or none"),
        b: VethEnd::new(Mac([2, 0, 0, 0, 0, 2]), &["10.77.0.2/24"]).expect("an address"),
        ..VethOptions::default()
    };
    // Frames that the near end merges are longer than its link carries, and a lane of frames drops them.
    options.a.offloads.gro = is_kernels;
    let cable = VethPair::create(&near, "near0", &far, "far0", &options).expect("a cable");
    Some((near, far, cable))
}

/// Certificates of a server, of its clients, and of a stranger that the store does not trust.
struct Papers {
    folder: Folder,
}

impl Papers {
    fn new() -> Papers {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-papers-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).expect("no folder has that name");
        let (ours, strange) = (Authority::new("ours"), Authority::new("another"));
        ours.write(&folder.0, "ours");
        ours.issue("store", &[NEAR, "127.0.0.1"]).write(&folder.0, "store");
        ours.issue("client", &[]).write(&folder.0, "client");
        strange.write(&folder.0, "strange");
        strange.issue("client", &[]).write(&folder.0, "stranger");
        Papers { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    /// What the store is given.
    fn words(&self, auth_clients: &str) -> Vec<String> {
        let mut words = vec!["--tls-cert-file".to_owned(), self.path("store.crt")];
        words.extend(["--tls-key-file".to_owned(), self.path("store.key")]);
        words.extend(["--tls-auth-clients".to_owned(), auth_clients.to_owned()]);
        if auth_clients != "no" {
            words.extend(["--tls-ca-cert-file".to_owned(), self.path("ours.crt")]);
        }
        words
    }

    /// What a program of Redis is given: the port, its authority, its certificate.
    fn client(&self, who: Option<&str>) -> String {
        let trusts = format!("-p 6380 --tls --cacert {}", self.path("ours.crt"));
        match who {
            None => trusts,
            Some(name) => {
                let [certificate, key] =
                    ["crt", "key"].map(|end| self.path(&format!("{name}.{end}")));
                format!("{trusts} --cert {certificate} --key {key}")
            }
        }
    }
}

fn served_with(near: &Namespace, spec: &str, on: &[&str], words: &[String], client: impl FnOnce()) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    served(near, spec, on, &words, |_| client());
}

fn by_tls(near: &Namespace, far: &Namespace, spec: &str, on: &[&str]) {
    let papers = Papers::new();
    let mut words = papers.words("yes");
    words.extend(["--tls-listen", "10.77.0.1:6380", "--protected-mode", "no"].map(str::to_owned));
    served_with(near, spec, on, &words, || {
        ask(far, &format!("{NEAR} {}", papers.client(Some("client"))), 100_000);
    });
}

#[test]
fn redis_programs_are_served_by_tls_on_kernel_sockets() {
    let Some((near, far, _cable)) = machines(true) else { return };
    by_tls(&near, &far, "socket", &[]);
}

#[test]
fn redis_programs_are_served_by_tls_on_io_uring() {
    let Some((near, far, _cable)) = machines(true) else { return };
    by_tls(&near, &far, "uring", &[]);
}

#[test]
fn redis_programs_are_served_by_tls_through_the_stack() {
    let Some((near, far, _cable)) = machines(false) else { return };
    by_tls(&near, &far, "packet", &["near0"]);
}

#[test]
fn each_port_says_what_it_does_not_speak_and_certificates_are_asked_for() {
    let Some((near, far, _cable)) = machines(true) else { return };
    let papers = Papers::new();
    let both =
        ["--listen", "10.77.0.1:6379", "--tls-listen", "10.77.0.1:6380", "--requirepass", "secret"];
    let words: Vec<String> =
        both.iter().map(ToString::to_string).chain(papers.words("optional")).collect();
    served_with(&near, "socket", &[], &words, || {
        let cli = |more: &str, line: &str| {
            output_of(
                &far,
                &format!("redis-cli -h {NEAR} --no-auth-warning -a secret {more} {line}"),
            )
        };
        assert_eq!(cli("", "SET k v"), "OK\n");
        assert_eq!(cli(&papers.client(None), "GET k"), "v\n");
        assert_eq!(cli(&papers.client(Some("client")), "GET k"), "v\n");
        let refused = cli(&papers.client(Some("stranger")), "GET k");
        assert!(!refused.lines().any(|line| line == "v"), "{refused}");
        // The store's certificate is of no issuer that this client knows.
        let strange = papers.path("strange.crt");
        let refused = cli(&format!("-p 6380 --tls --cacert {strange}"), "GET k");
        assert!(refused.contains("certificate verify failed"), "{refused}");
        let plain = output_of(&far, &format!("redis-cli -h {NEAR} -p 6380 PING"));
        assert!(plain.contains("TLS alone is spoken at this port"), "{plain}");
        let secret = output_of(&far, &format!("redis-cli -h {NEAR} --tls --cacert {strange} PING"));
        assert!(secret.contains("Could not connect") && secret.contains("SSL"), "{secret}");
        let info = cli("", "INFO stats");
        for line in [
            "tls_at_plain_port",
            "tls_not_spoken",
            "tls_client_certificate_refused",
            "tls_refused_by_client",
        ] {
            // redis-cli tries twice where it cannot connect.
            assert!(info.contains(&format!("\r\n{line}:")), "{line}: {info}");
            assert!(!info.contains(&format!("\r\n{line}:0\r\n")), "{line}: {info}");
        }
        assert!(info.contains("\r\ntls_handshakes:2\r\n"), "{info}");
        assert_eq!(cli("", "CONFIG GET tls-*"), "tls-auth-clients\noptional\ntls-port\n6380\n");
        cli("", "SHUTDOWN");
    });
}

#[test]
fn openssl_talks_to_it_in_both_versions_and_in_no_older_one() {
    let Some((near, far, _cable)) = machines(true) else { return };
    if output_of(&near, "openssl version").contains("not found") {
        return skip("the program `openssl` is not installed");
    }
    let papers = Papers::new();
    let mut words = papers.words("yes");
    words.extend(["--tls-listen", "10.77.0.1:6380", "--requirepass", "secret"].map(str::to_owned));
    served(&near, "socket", &[], &words.iter().map(String::as_str).collect::<Vec<_>>(), |stop| {
        let client = |more: &str, who: &str| {
            let (ours, own) = (papers.path("ours.crt"), papers.path(who));
            output_of(
                &far,
                &format!(
                    "printf 'AUTH secret\\r\\nECHO hello\\r\\nQUIT\\r\\n' | timeout 60 openssl s_client -quiet \
                     -verify_return_error -verify_ip {NEAR} -connect {NEAR}:6380 -CAfile {ours} -cert {own}.crt \
                     -key {own}.key {more}"
                ),
            )
        };
        for version in ["-tls1_2", "-tls1_3"] {
            let heard = client(version, "client");
            assert!(heard.contains("+OK\r\n$5\r\nhello\r\n+OK\r\n"), "{version}: {heard}");
            let heard = client(version, "stranger");
            assert!(!heard.contains("hello") && heard.contains("alert"), "{version}: {heard}");
        }
        let heard = client("-tls1_1 -cipher ALL:@SECLEVEL=0", "client");
        assert!(!heard.contains("hello"), "{heard}");
        // Nothing is plain where only TLS was asked for.
        let plain = output_of(&far, &format!("redis-cli -h {NEAR} PING"));
        assert!(plain.contains("Could not connect"), "{plain}");
        stop.request();
    });
}

/// Handshakes that stop in the middle or make no sense, and a client that is killed under way: each is counted by its
/// name, and a client that speaks TLS as it should is served meanwhile.
#[test]
fn a_client_that_does_not_finish_a_handshake_holds_up_no_other() {
    let Some((near, far, _cable)) = machines(true) else { return };
    let papers = Papers::new();
    let mut words = papers.words("no");
    words.extend(["--tls-listen", "10.77.0.1:6380", "--requirepass", "secret"].map(str::to_owned));
    served_with(&near, "socket", &[], &words, || {
        let begun = |bytes: &[u8]| {
            let stream = far.enter(|| TcpStream::connect((NEAR, 6380)));
            let mut stream = stream.expect("its namespace is there").expect("the store listens");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has this");
            stream.write_all(bytes).expect("it is connected");
            stream
        };
        // A record of 512 bytes with a ClientHello of 508, of which these are the first.
        let cut = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 32]].concat();
        let _silent = [begun(&[]), begun(&cut[..3]), begun(&cut)];
        drop(begun(&cut));
        let mut senseless = begun(&[&[22, 3, 1, 0, 8][..], &[255; 8]].concat());
        let mut alert = Vec::new();
        // The store may end the connection before all is read.
        let _ = senseless.read_to_end(&mut alert);
        assert!(alert.is_empty() || alert[0] == 21, "an alert, or nothing: {alert:?}");
        let cli = |line: &str| {
            let client = papers.client(None);
            output_of(
                &far,
                &format!("redis-cli -h {NEAR} --no-auth-warning -a secret {client} {line}"),
            )
        };
        assert_eq!(cli("SET k v"), "OK\n");
        let client = papers.client(None);
        let killed = format!(
            "redis-cli -h {NEAR} --no-auth-warning -a secret {client} BLPOP none 0 > /dev/null & \
             until redis-cli -h {NEAR} --no-auth-warning -a secret {client} INFO clients | grep -q blocked_clients:1; \
             do sleep 0.02; done; kill -9 $!; wait $! 2>/dev/null; true"
        );
        output_of(&far, &killed);
        let mut info = String::new();
        let wanted = ["tls_handshake_broken_off:1", "tls_handshake_failed:1", "tls_truncated:1"];
        for _ in 0..1_000 {
            info = cli("INFO stats");
            if wanted.iter().all(|line| info.contains(line)) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for line in wanted {
            assert!(info.contains(line), "{line}: {info}");
        }
        assert_eq!(cli("GET k"), "v\n");
        cli("SHUTDOWN");
    });
}

/// What the store says to these bytes from another machine, until it ends the connection or `enough` has come.
fn raw(far: &Namespace, bytes: &[u8], enough: &str) -> String {
    let stream = far.enter(|| TcpStream::connect((NEAR, 6379))).expect("its namespace is there");
    let mut stream = stream.expect("the store listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has this");
    // The store may end the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while enough.is_empty() || !String::from_utf8_lossy(&answer).contains(enough) {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => answer.extend_from_slice(&piece[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_store_without_configuration_is_for_its_own_machine() {
    let Some((near, far, _cable)) = machines(true) else { return };
    let up = near.command("ip").args(["link", "set", "lo", "up"]).status();
    assert!(up.is_ok_and(|status| status.success()));
    served(&near, "socket", &[], &[], |_| {
        let refused = output_of(&far, &format!("redis-cli -h {NEAR} PING"));
        assert!(refused.contains("Connection refused"), "{refused}");
        assert_eq!(output_of(&near, "redis-cli PING"), "PONG\n");
        output_of(&near, "redis-cli SHUTDOWN");
    });
}

#[test]
fn a_stranger_may_do_what_was_granted_and_no_more() {
    let Some((near, far, _cable)) = machines(true) else { return };
    let words = ["--listen", "10.77.0.1:6379", "--requirepass", "secret"];
    served(&near, "socket", &[], &words, |_| {
        // Before the password: ten short arguments, and nothing is done.
        let answer_to = |bytes: &[u8], enough: &str| raw(&far, bytes, enough);
        assert_eq!(
            answer_to(b"*11\r\n", ""),
            "-ERR Protocol error: unauthenticated multibulk length\r\n"
        );
        let long = answer_to(b"*1\r\n$16385\r\n", "");
        assert_eq!(long, "-ERR Protocol error: unauthenticated bulk length\r\n");
        assert_eq!(answer_to(b"SET k v\r\n", "\n"), "-NOAUTH Authentication required.\r\n");
        let wrong = answer_to(b"AUTH default wrong\r\n", "\n");
        assert!(wrong.starts_with("-WRONGPASS"), "{wrong}");
        assert!(answer_to(&[b'x'; 70_000], "").contains("too big inline request"));

        let cli = |more: &str, line: &str| {
            output_of(&far, &format!("redis-cli -h {NEAR} --no-auth-warning {more} {line}"))
        };
        let operator = |line: &str| cli("-a secret", line);
        assert_eq!(operator("DBSIZE"), "0\n");
        assert_eq!(operator("ACL SETUSER reader on '>pw' '~*' +@read +auth"), "OK\n");
        assert_eq!(operator("SET k v"), "OK\n");
        let reader = |line: &str| cli("--user reader --pass pw", line);
        assert_eq!(reader("GET k"), "v\n");
        for line in ["SET k w", "CONFIG GET dir", "ACL LIST", "SHUTDOWN NOSAVE", "FLUSHALL"] {
            let refused = reader(line);
            assert!(refused.contains("NOPERM"), "{line}: {refused}");
        }
        // No path from the wire.
        for name in ["dir", "dbfilename", "logfile", "aclfile", "tls-cert-file", "unixsocket"] {
            let refused = operator(&format!("CONFIG SET {name} /tmp/x"));
            assert!(refused.contains("can't set protected config"), "{name}: {refused}");
        }
        for line in ["DEBUG SLEEP 0", "MODULE LOAD /tmp/x.so", "EVAL 'return 1' 0"] {
            let refused = operator(line);
            assert!(refused.contains("ERR unknown command"), "{line}: {refused}");
        }
        // A query beyond its limit ends the connection without an answer.
        assert_eq!(operator("CONFIG SET client-query-buffer-limit 1mb"), "OK\n");
        let query =
            [&b"AUTH secret\r\n*2\r\n$4\r\nECHO\r\n$4000000\r\n"[..], &[b'x'; 2 << 20]].concat();
        assert!(matches!(answer_to(&query, "").as_str(), "" | "+OK\r\n"));
        let info = operator("INFO stats");
        assert!(info.contains("client_query_buffer_limit_disconnections:1\r\n"), "{info}");
        assert!(info.contains("acl_access_denied_auth:1\r\n"), "{info}");
        assert_eq!(operator("CONFIG SET maxclients 1"), "OK\n");
        // It is a client when it has been answered, and the store may learn of a newcomer before it learns
        // that the operator is gone.
        let counted = (0..1000).find_map(|_| {
            let waits = far.enter(|| TcpStream::connect((NEAR, 6379)));
            let mut waits = waits.expect("its namespace is there").expect("the store listens");
            waits.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has this");
            // A store that refuses may end the connection before it has read this, or was read.
            let _ = waits.write_all(b"PING\r\n");
            let mut answer = [0; 100];
            let count = waits.read(&mut answer).unwrap_or(0);
            answer[..count].starts_with(b"-NOAUTH").then_some(waits)
        });
        let mut waits = counted.expect("the operator is gone, so there is room for one client");
        assert_eq!(answer_to(b"", ""), "-ERR max number of clients reached\r\n");
        waits.write_all(b"AUTH secret\r\nSHUTDOWN NOSAVE\r\n").expect("it is connected");
    });
}

/// The sentence of a run that is refused.
fn refused(words: &[&str]) -> String {
    let spec: LaneSpec = "socket".parse().expect("a lane spec");
    let command = KvArguments::augment_args(Words::new("kv").no_binary_name(true));
    let matches = command.try_get_matches_from(words).expect("words of the store");
    let arguments = KvArguments::from_arg_matches(&matches).expect("words of the store");
    let lane = facts_of::<Lanes>(&spec).expect("a lane of the table");
    match KvKind::plan(&arguments, On { spec: &spec, lane, interfaces: &[], workers: 1 }) {
        Err(Failure::Because(_, sentence)) => sentence,
        other => panic!("{words:?}: {other:?}"),
    }
}

#[test]
fn tls_that_cannot_be_is_refused_with_what_to_say_instead() {
    let papers = Papers::new();
    let path = |name: &str| papers.path(name);
    let at = "--tls-listen 127.0.0.1:6380";
    let pair =
        format!("--tls-cert-file {} --tls-key-file {}", path("store.crt"), path("store.key"));
    let no = "--tls-auth-clients no";
    for (line, parts) in [
        (format!("{pair} {no}"), ["--tls-cert-file", "--tls-listen ADDR:PORT"]),
        (no.to_owned(), ["--tls-auth-clients", "--tls-listen ADDR:PORT"]),
        (format!("{at} {no}"), ["--tls-cert-file PATH", "--tls-key-file PATH"]),
        (format!("{at} {pair}"), ["--tls-ca-cert-file PATH", "--tls-auth-clients no"]),
        (
            format!("{at} {pair} {no} --tls-ca-cert-file {}", path("ours.crt")),
            ["ours.crt", "optional"],
        ),
        (format!("{at} {pair} {no} --listen 127.0.0.1:6380"), ["127.0.0.1:6380", "once"]),
        (
            format!(
                "{at} {no} --tls-cert-file {} --tls-key-file {}",
                path("store.crt"),
                path("client.key")
            ),
            ["client.key", "store.crt"],
        ),
        (
            format!(
                "{at} {no} --tls-cert-file {} --tls-key-file /nowhere/x.key",
                path("store.crt")
            ),
            ["/nowhere/x.key", "No such file"],
        ),
    ] {
        let refusal = refused(&line.split(' ').collect::<Vec<_>>());
        assert!(parts.iter().all(|part| refusal.contains(part)), "{line}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}
