//! Two ways to ask: the store behind the least of servers, and a real `redis-server` over a socket in a folder of its
//! own.

use laneway_kv::{Call, Command, DATA_COMMANDS, Effects, Events, LsmValues, Outcome, Run, Store};
use laneway_resp::{Protocol, Reply};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A command's arguments, its name first.
pub(crate) type Args = Vec<Vec<u8>>;

/// The store, and a server that knows no more than names and arities.
pub(crate) struct Local {
    pub(crate) store: Store,
    pub(crate) database: usize,
    pub(crate) now_ms: u64,
    pub(crate) reply: Reply,
    pub(crate) effects: Effects,
    /// Events of keys that the effects of a command have.
    pub(crate) events: Events,
    /// Behind the store, whose values beyond memory are in it.
    _folder: Option<Folder>,
}

/// A folder of the test's own, removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Folder {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("laneway-kv-{test}-{number}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made for the test");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed does not change what the test has seen.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Local {
    pub(crate) fn new(store: Store, now_ms: u64) -> Local {
        let (reply, effects) = (Reply::new(Protocol::Resp2), Effects::default());
        let events = Events::default();
        Local { store, database: 0, now_ms, reply, effects, events, _folder: None }
    }

    /// The same, whose values beyond so many bytes are in an LSM tree.
    pub(crate) fn spilling(
        mut store: Store,
        now_ms: u64,
        test: &str,
        memory_bytes_max: usize,
    ) -> Local {
        let folder = Folder::new(test);
        store.settings_mut().memory_bytes_max = Some(memory_bytes_max);
        store.spill_to(Box::new(LsmValues::open(&folder.0, None).expect("an empty folder")));
        Local { _folder: Some(folder), ..Local::new(store, now_ms) }
    }

    /// The reply to a command. One that waits is answered as inside MULTI: with nothing.
    pub(crate) fn ask(&mut self, args: &[Vec<u8>]) -> Vec<u8> {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let args = args.as_slice();
        self.reply.clear();
        self.effects = Effects { wants_events: self.events, ..Effects::default() };
        let name = String::from_utf8_lossy(args[0]).to_ascii_lowercase();
        if name == "select" {
            self.database = std::str::from_utf8(args[1]).expect("text").parse().expect("a number");
            return b"+OK\r\n".to_vec();
        }
        let Some(command) = find(args) else {
            return format!("-ERR unknown command '{name}'\r\n").into_bytes();
        };
        let arity = command.arity.unsigned_abs() as usize;
        if args.len() < arity || (command.arity > 0 && args.len() > arity) {
            let name = command.name;
            self.reply.error(&format!("ERR wrong number of arguments for '{name}' command"));
            return self.reply.bytes().to_vec();
        }
        let Run::Data(run) = command.run else { panic!("{name} is the server's") };
        self.store.fetch_now(command, self.database, args).expect("no value is lost");
        let outcome = run(&mut Call {
            args,
            store: &mut self.store,
            database: self.database,
            reply: &mut self.reply,
            now_ms: self.now_ms,
            ready: None,
            effects: &mut self.effects,
        });
        match outcome {
            Outcome::Done => {}
            Outcome::Waits { null_array: true, .. } => self.reply.null_array(),
            Outcome::Waits { null_array: false, .. } => self.reply.null(),
        }
        self.store.spill_excess(self.now_ms);
        self.reply.bytes().to_vec()
    }
}

/// The row of a command, or of its subcommand.
pub(crate) fn find(args: &[&[u8]]) -> Option<&'static Command> {
    let lower = |arg: &[u8]| String::from_utf8_lossy(arg).to_ascii_lowercase();
    let mut names = vec![lower(args[0])];
    if let Some(second) = args.get(1) {
        names.push(format!("{}|{}", names[0], lower(second)));
    }
    let rows = DATA_COMMANDS.iter().copied().flatten();
    rows.into_iter().find(|row| names.iter().any(|name| name == row.name))
}

/// A `redis-server` of the test's own, ended with it.
pub(crate) struct Redis {
    child: Child,
    folder: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Debian's tools hold the server too, under a name by which it does something else.
const PROGRAMS: [&str; 2] = ["redis-server", "redis-check-rdb"];
const PATIENCE: Duration = Duration::from_secs(60);

impl Redis {
    /// Starts a server; why not, if there is none here.
    pub(crate) fn start(test: &str) -> Result<Redis, String> {
        let folder = std::env::temp_dir().join(format!("laneway-kv-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let socket = folder.join("redis.sock");
        let program = PROGRAMS.iter().find_map(|program| in_path(program));
        let program = program.ok_or("redis-server is not installed")?;
        let mut child = std::process::Command::new(&program)
            .arg0("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("{} cannot be started: {why}", program.display()))?;
        let begun = Instant::now();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            let ended = child.try_wait().ok().flatten();
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let _ = child.kill();
                return Err(format!("{} gives no socket", program.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut redis = Redis { child, folder, stream: BufReader::new(stream) };
        let info = redis.ask(&[b"INFO".to_vec(), b"server".to_vec()]);
        match String::from_utf8_lossy(&info).contains("redis_version:7.0.") {
            true => Ok(redis),
            false => Err(format!("{} is not Redis 7.0, the judge", program.display())),
        }
    }

    pub(crate) fn ask(&mut self, args: &[Vec<u8>]) -> Vec<u8> {
        ask(&mut self.stream, args)
    }

    /// Another connection, which hears the events of keys of these classes.
    pub(crate) fn listen(&mut self, classes: &str) -> Listener {
        let set = ["CONFIG", "SET", "notify-keyspace-events", classes];
        let answer = self.ask(&set.map(|word| word.as_bytes().to_vec()));
        assert_eq!(answer, b"+OK\r\n", "{classes}");
        let stream = UnixStream::connect(self.folder.join("redis.sock")).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let mut stream = BufReader::new(stream);
        ask(&mut stream, &["PSUBSCRIBE", "__keyspace@*"].map(|word| word.as_bytes().to_vec()));
        Listener { stream }
    }
}

/// A connection that is sent the events of keys.
pub(crate) struct Listener {
    stream: BufReader<UnixStream>,
}

impl Listener {
    /// What it was sent since it was last asked: `database key event`, in the order of the server.
    pub(crate) fn heard(&mut self) -> Vec<String> {
        send(&mut self.stream, &[b"PING".to_vec()]);
        let mut heard = Vec::new();
        loop {
            let mut reply = Vec::new();
            read(&mut self.stream, &mut reply);
            match &texts(&reply)[..] {
                [_, _, channel, event] => {
                    let place = channel.strip_prefix("__keyspace@").expect("a channel of keys");
                    let (database, key) = place.split_once("__:").expect("a database and a key");
                    heard.push(format!("{database} {key} {event}"));
                }
                _ => return heard,
            }
        }
    }
}

/// The parts of an array of strings, with escapes.
fn texts(mut reply: &[u8]) -> Vec<String> {
    let mut line = || {
        let end = reply.windows(2).position(|two| two == b"\r\n").expect("a whole reply");
        let (line, rest) = reply.split_at(end);
        reply = &rest[2..];
        line
    };
    let parts: usize = String::from_utf8_lossy(&line()[1..]).parse().expect("an array");
    let mut texts = Vec::new();
    for _ in 0..parts {
        let bytes: usize = String::from_utf8_lossy(&line()[1..]).parse().expect("a length");
        let mut text = line().to_vec();
        while text.len() < bytes {
            // The text has line ends of its own.
            text.extend_from_slice(b"\r\n");
            text.extend_from_slice(line());
        }
        texts.push(shown(&text));
    }
    texts
}

fn send(stream: &mut BufReader<UnixStream>, args: &[Vec<u8>]) {
    let mut request = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        request.extend(format!("${}\r\n", arg.len()).into_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
    stream.get_mut().write_all(&request).expect("redis-server reads");
}

fn ask(stream: &mut BufReader<UnixStream>, args: &[Vec<u8>]) -> Vec<u8> {
    send(stream, args);
    let mut reply = Vec::new();
    read(stream, &mut reply);
    reply
}

fn read(stream: &mut BufReader<UnixStream>, reply: &mut Vec<u8>) {
    let from = reply.len();
    let bytes = stream.read_until(b'\n', reply).expect("redis-server answers");
    assert!(bytes > 0, "redis-server closed the connection");
    let head = String::from_utf8_lossy(&reply[from..]).into_owned();
    let len = head[1..].trim_end().parse::<i64>().unwrap_or(-1);
    match head.as_bytes()[0] {
        b'$' if len >= 0 => {
            let body = reply.len();
            reply.resize(body + len as usize + 2, 0);
            stream.read_exact(&mut reply[body..]).expect("redis-server answers");
        }
        b'*' | b'~' => (0..len.max(0)).for_each(|_| read(stream, reply)),
        b'%' => (0..len.max(0) * 2).for_each(|_| read(stream, reply)),
        _ => {}
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Nothing is left to do if it has ended already, or if the folder cannot be removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(OsStr::new(&path))
        .map(|folder: PathBuf| Path::new(&folder).join(program))
        .find(|file| file.is_file())
}

/// A reply as text: what it says, with escapes.
pub(crate) fn shown(reply: &[u8]) -> String {
    reply.escape_ascii().to_string()
}
