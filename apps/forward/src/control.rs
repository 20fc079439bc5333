//! The control socket: commands about rules while the app runs, from whoever may open a file.
//!
//! A Unix stream socket where the user says, for its owner alone. **Protocol**: every line is a command;
//! every line, an empty one too, is answered by lines that end with an empty one; the first line of a
//! refusal begins with `error: `. What has no newline before the client leaves is refused, not done.
//! `quit`, or closing the connection, ends a conversation and not the run.
//!
//! What must always hold: the file is ours or it is not touched (that of a server that lives is refused,
//! one that nobody listens on is replaced); it is gone when [`ControlSocket`] is; whatever a client says
//! or leaves unsaid costs a thread, a line's worth of memory and its own connection, and no more than
//! [`CLIENTS_MAX`] of them. It executes nothing: [`Console`] does.

use crate::console::{Answer, Console};
use crate::lines::{self, Next};
use laneway_kinds::Failure;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Clients at a time; further ones are told so.
pub(crate) const CLIENTS_MAX: usize = 8;
/// A client that takes no answer for so long is left.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// After a client could not be accepted: descriptors may be short, and come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The answer to what is no line.
const UNENDED: &str =
    "error: the line has no end, so nothing was done; end every command with a newline\n\n";
/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// The socket's file, which is removed with it.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: another file of the same name is not ours to remove.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Opens the socket at `path`; clients wait until it is served.
    pub(crate) fn open(path: &Path) -> Result<ControlSocket, Failure> {
        let cannot = |why: &dyn std::fmt::Display, hint: &str| {
            Failure::input(format!("cannot open --control {}: {why}; {hint}", path.display()))
        };
        let os =
            |error: io::Error| cannot(&error, "choose a path in a folder that you may write to");
        // Two programs that find the same leftover must not replace each other's: one at a time.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or_else(|| Path::new("."))).map_err(os)?;
        folder.lock().map_err(os)?;
        let listener = match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                make_room(path).map_err(|why| cannot(&why, "choose another path"))?;
                bind(path)
            }
            bound => bound,
        };
        let listener = listener.map_err(os)?;
        let file = fs::symlink_metadata(path).map_err(os)?;
        let identity = (file.dev(), file.ino());
        Ok(ControlSocket { listener, path: path.to_owned(), identity })
    }

    /// Serves clients from now on, on threads of their own, which end with the process.
    pub(crate) fn serve(&self, console: &Arc<Console>) -> Result<(), Failure> {
        let cannot = |error: io::Error| Failure::input(format!("cannot serve --control: {error}"));
        let listener = self.listener.try_clone().map_err(cannot)?;
        let console = Arc::clone(console);
        let accept = move || {
            let clients = Arc::new(AtomicUsize::new(0));
            for client in listener.incoming() {
                match client {
                    Ok(client) => admit(client, &console, &clients),
                    Err(_) => thread::sleep(ACCEPT_PAUSE),
                }
            }
        };
        thread::Builder::new().name("control".to_owned()).spawn(accept).map_err(cannot)?;
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let there = fs::symlink_metadata(&self.path).map(|file| (file.dev(), file.ino()));
        if there.is_ok_and(|there| there == self.identity) {
            // Whoever made it unremovable meanwhile has to remove it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A listening socket whose file is the owner's alone from its first moment on: the file takes the mode
/// that the socket has when it is bound.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let socket = File::from(socket);
    socket.set_permissions(Permissions::from_mode(0o600))?;
    let socket = OwnedFd::from(socket);
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket that nobody listens on.
fn make_room(path: &Path) -> Result<(), String> {
    let file = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if !file.file_type().is_socket() {
        return Err("a file that is no socket is there".to_owned());
    }
    match UnixStream::connect(path) {
        Ok(_) => Err("another program is listening there".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("a socket is there that cannot be asked: {error}")),
    }
}

/// Counts a client out when its conversation ends, however it ends.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn admit(client: UnixStream, console: &Arc<Console>, clients: &Arc<AtomicUsize>) {
    // Relaxed: this thread alone adds, and being one too many for a moment harms nobody.
    let before = clients.fetch_add(1, Ordering::Relaxed);
    let place = Place(Arc::clone(clients));
    if client.set_write_timeout(Some(WRITE_WAIT)).is_err() {
        return;
    }
    if before >= CLIENTS_MAX {
        // It may be gone already.
        let _ = writeln!(&client, "error: {CLIENTS_MAX} clients are the most; try again later\n");
        return;
    }
    let console = Arc::clone(console);
    let talk = move || {
        let _place = place;
        // A client that is gone has nobody to be told.
        let _ = converse(&client, &console);
    };
    // Without a thread the connection closes, which the client sees.
    let _ = thread::Builder::new().name("control-client".to_owned()).spawn(talk);
}

/// Answers line by line until the client leaves.
fn converse(client: &UnixStream, console: &Console) -> io::Result<()> {
    let (mut input, mut output) = (BufReader::new(client), client);
    let mut line = Vec::new();
    loop {
        match lines::next(&mut input, &mut line)? {
            Next::Line => {}
            Next::Nothing => return Ok(()),
            Next::Unended => {
                // A client that died in the middle of `rule 12` has not said `rule 1`.
                output.write_all(UNENDED.as_bytes())?;
                return Ok(());
            }
        }
        let answer = match console.answer(&String::from_utf8_lossy(&line)) {
            Answer::Done(said) => format!("{said}\n"),
            Answer::Wrong(said) => format!("error: {said}\n"),
            Answer::Quit => {
                output.write_all(b"\n")?;
                return Ok(());
            }
        };
        output.write_all(answer.as_bytes())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, LINE_BYTES_MAX, LiveStats, RuleSet};
    use std::io::{BufRead, Read};
    use std::net::Shutdown;

    const DROP: &str = "flow create 0 ingress pattern eth / ipv4 / end actions drop / end";

    struct Served {
        path: PathBuf,
        socket: ControlSocket,
        console: Arc<Console>,
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("laneway-control-{}-{name}", std::process::id()))
    }

    fn served(name: &str) -> Served {
        let path = path(name);
        let socket = ControlSocket::open(&path).unwrap();
        let rules = RuleSet::for_user(Bounds { ports: 2, queues: 1 });
        let console = Arc::new(Console::new(rules, LiveStats::default()));
        socket.serve(&console).unwrap();
        Served { path, socket, console }
    }

    /// Says this and gives everything that is said until the server closes.
    fn said(path: &Path, text: &[u8]) -> String {
        let mut client = UnixStream::connect(path).unwrap();
        client.write_all(text).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn refusal(path: &Path) -> String {
        let Err(Failure::Because(_, why)) = ControlSocket::open(path) else { panic!("it opened") };
        assert_eq!(why.lines().count(), 1, "{why}");
        why
    }

    #[test]
    fn every_line_is_answered_and_answers_end_with_an_empty_line() {
        let served = served("lines");
        let text = format!("{DROP}\n\nflow crate 0\nflow flush 0\nshow rules\nquit\n{DROP}\n");
        assert_eq!(
            said(&served.path, text.as_bytes()),
            "Flow rule #0 created\n\n\n\
             error: flow rule, column 6: found `crate`, expected one of create validate list query \
             destroy flush; did you mean `create`?\n  flow crate 0\n       ^\n\n\n\n\n"
        );
        assert!(served.console.rules().is_empty(), "what comes behind quit is not read");
    }

    #[test]
    fn a_command_that_was_cut_off_is_not_done() {
        let served = served("cut");
        let text = format!("{DROP}\nflow destroy 0 rule 0");
        let answer = said(&served.path, text.as_bytes());
        assert!(
            answer.starts_with("Flow rule #0 created\n\nerror: the line has no end"),
            "{answer}"
        );
        assert_eq!(served.console.rules().len(), 1);
    }

    #[test]
    fn hostile_input_is_answered_and_harms_nobody() {
        let served = served("hostile");
        let long = [vec![b'x'; 4 * LINE_BYTES_MAX], b"\n".to_vec()].concat();
        for text in [&long[..], b"\xff\xfe\x00\x01\n", b"flow \x1b[2J\n", &[0; 9000], b"flow"] {
            let answer = said(&served.path, text);
            assert!(answer.starts_with("error: ") && answer.ends_with("\n\n"), "{answer:?}");
        }
        // One that leaves in the middle, and one that never reads.
        drop(UnixStream::connect(&served.path).unwrap());
        let mut deaf = UnixStream::connect(&served.path).unwrap();
        deaf.write_all(b"help\nhelp\n").unwrap();
        assert_eq!(said(&served.path, format!("{DROP}\n").as_bytes()), "Flow rule #0 created\n\n");
    }

    #[test]
    fn more_clients_than_there_may_be_are_told_so() {
        let served = served("crowd");
        let mut crowd = Vec::new();
        for _ in 0..CLIENTS_MAX {
            let mut client = BufReader::new(UnixStream::connect(&served.path).unwrap());
            client.get_mut().write_all(b"\n").unwrap();
            client.read_line(&mut String::new()).unwrap();
            crowd.push(client);
        }
        let mut late = String::new();
        UnixStream::connect(&served.path).unwrap().read_to_string(&mut late).unwrap();
        assert_eq!(late, "error: 8 clients are the most; try again later\n\n");
    }

    #[test]
    fn the_file_is_the_owners_alone_and_goes_with_the_socket() {
        let served = served("mode");
        let mode = fs::symlink_metadata(&served.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(served.socket);
        assert!(!served.path.exists());
    }

    #[test]
    fn a_live_server_is_left_alone_and_a_leftover_replaced() {
        let first = served("twice");
        assert!(refusal(&first.path).contains("another program is listening"));
        assert!(first.path.exists());
        let leftover = path("leftover");
        drop(UnixListener::bind(&leftover).unwrap());
        assert!(leftover.exists());
        drop(ControlSocket::open(&leftover).unwrap());
        assert!(!leftover.exists());
        fs::write(&leftover, "precious").unwrap();
        assert!(refusal(&leftover).contains("no socket"));
        assert_eq!(fs::read(&leftover).unwrap(), b"precious");
        fs::remove_file(&leftover).unwrap();
        assert!(refusal(Path::new("/nowhere/at/all")).contains("choose a path"));
        assert!(refusal(&path(&"x".repeat(200))).contains("choose a path"));
    }

    #[test]
    fn a_file_that_replaced_ours_is_not_removed() {
        let served = served("replaced");
        fs::remove_file(&served.path).unwrap();
        fs::write(&served.path, "theirs").unwrap();
        drop(served.socket);
        assert_eq!(fs::read(&served.path).unwrap(), b"theirs");
        fs::remove_file(&served.path).unwrap();
    }
}
