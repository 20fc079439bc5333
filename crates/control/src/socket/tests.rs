use super::*;
use crate::answer::{AnswerWriter, Gone, LINE_BYTES_MAX, LineAnswer};
use crate::client::{Client, Heard, ask};
use crate::lines::SKIPPED_BYTES_MAX;
use crate::rights::DESCRIPTORS_MAX;
use laneway_testkit::skip;
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats lines; counts those it received.
#[derive(Default)]
struct Echo {
    lines: AtomicUsize,
    /// Ends of what goes on.
    gone: AtomicUsize,
    kept: Mutex<Vec<OwnedFd>>,
}

impl Answerer for Arc<Echo> {
    fn answer(&self, line: &str) -> LineAnswer {
        self.lines.fetch_add(1, Ordering::SeqCst);
        let echo = Arc::clone(self);
        match line {
            "quit" => LineAnswer::Quit,
            "no" => LineAnswer::Wrong("not that\n  really\n\n".to_owned()),
            "panic" => panic!("as asked"),
            "give" => {
                let kept = std::mem::take(&mut *self.kept.lock().unwrap());
                LineAnswer::Handed(format!("{} of them\n", kept.len()), kept)
            }
            "keep" => LineAnswer::Streamed(Box::new(move |writer: &mut AnswerWriter<'_>| {
                writer.keep(Leaves(echo));
                writer.write("kept")
            })),
            "watch" => LineAnswer::Streamed(Box::new(move |writer: &mut AnswerWriter<'_>| {
                let mut tick = || -> Result<(), Gone> {
                    for i in 0.. {
                        writer.write(&format!("tick {i}\n"))?;
                        writer.wait(if i < 2 { Duration::ZERO } else { PATIENCE })?;
                    }
                    Ok(())
                };
                let over = tick();
                echo.gone.fetch_add(1, Ordering::SeqCst);
                over
            })),
            line => LineAnswer::Done(format!("{line}\n")),
        }
    }

    fn answer_with(&self, line: &str, descriptors: Vec<OwnedFd>) -> LineAnswer {
        if line != "take" {
            return LineAnswer::Wrong("what are they for?".to_owned());
        }
        let count = descriptors.len();
        self.kept.lock().unwrap().extend(descriptors);
        LineAnswer::Done(format!("took {count}\n"))
    }
}

/// Counts its end as one of what goes on.
struct Leaves(Arc<Echo>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
    }
}

struct Served {
    path: PathBuf,
    socket: ControlSocket,
    echo: Arc<Echo>,
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("laneway-control-{}-{name}", std::process::id()))
}

fn served(name: &str) -> Served {
    let path = path(name);
    let mut socket = ControlSocket::open(&path).unwrap();
    let echo = Arc::new(Echo::default());
    socket.serve(Arc::new(Arc::clone(&echo))).unwrap();
    Served { path, socket, echo }
}

/// Sends this and returns everything that is received until the server closes.
fn answers_to(path: &Path, text: &[u8]) -> String {
    let mut client = UnixStream::connect(path).unwrap();
    client.write_all(text).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

fn refusal(path: &Path) -> String {
    let why = ControlSocket::open(path).unwrap_err().to_string();
    assert_eq!(why.lines().count(), 1, "{why}");
    why
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_line_is_answered_and_answers_end_with_an_empty_line() {
    let served = served("lines");
    assert_eq!(
        answers_to(&served.path, b"one\r\n\nno\ntwo\nquit\nthree\n"),
        "one\n\n\nerror: not that\n  really\n\ntwo\n\n\n"
    );
    assert_eq!(served.echo.lines.load(Ordering::SeqCst), 5, "what comes behind quit is not read");
}

#[test]
fn a_command_that_was_cut_off_is_not_done() {
    let served = served("cut");
    let answer = answers_to(&served.path, b"one\ntwo");
    assert!(answer.starts_with("one\n\nerror: the line has no end"), "{answer}");
    assert_eq!(served.echo.lines.load(Ordering::SeqCst), 1);
}

#[test]
fn hostile_input_is_answered_in_a_sentence_and_does_no_harm() {
    let served = served("hostile");
    let long = [vec![b'x'; 4 * LINE_BYTES_MAX], b"\n".to_vec()].concat();
    let answer = answers_to(&served.path, &[&long[..], b"two\n"].concat());
    let sentence = answer.strip_suffix("\n\ntwo\n\n").unwrap();
    assert!(sentence.starts_with("error: ") && sentence.contains("4096 are the most"), "{answer}");
    assert_eq!(sentence.lines().count(), 1);
    assert_eq!(answers_to(&served.path, b"\xff\x00\x1b[2J\n"), "\u{fffd}\0\u{1b}[2J\n\n");
    // One that leaves in the middle, one that never reads, one whose answer panics.
    drop(UnixStream::connect(&served.path).unwrap());
    let mut deaf = UnixStream::connect(&served.path).unwrap();
    deaf.write_all(b"help\nhelp\n").unwrap();
    assert_eq!(answers_to(&served.path, b"panic\n"), "");
    assert_eq!(answers_to(&served.path, b"one\n"), "one\n\n");
}

#[test]
fn a_line_without_end_is_given_up() {
    let served = served("endless");
    let mut client = UnixStream::connect(&served.path).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    let mut written = 0;
    // The server closes some time behind what it reads past.
    while client.write_all(&chunk).is_ok() {
        written += chunk.len();
        assert!(written < 2 * SKIPPED_BYTES_MAX, "it reads on for ever");
    }
    let mut answer = String::new();
    // What was not read yet resets the connection behind the answer.
    let _ = client.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.contains("a line does not end"), "{answer}");
    assert_eq!(served.echo.lines.load(Ordering::SeqCst), 0);
    assert_eq!(answers_to(&served.path, b"one\n"), "one\n\n");
}

#[test]
fn more_clients_than_there_may_be_are_refused_with_the_reason() {
    let served = served("crowd");
    let mut crowd = Vec::new();
    for _ in 0..CLIENTS_MAX {
        let mut client = Client::connect(&served.path).unwrap();
        assert_eq!(client.ask("hello").unwrap().lines, ["hello"]);
        crowd.push(client);
    }
    for _ in 0..3 * CLIENTS_MAX {
        let mut late = String::new();
        UnixStream::connect(&served.path).unwrap().read_to_string(&mut late).unwrap();
        assert_eq!(late, "error: 8 clients are the most; try again later\n\n");
        let refused = ask(&served.path, "hello").unwrap();
        assert!(refused.is_refused && refused.lines == ["8 clients are the most; try again later"]);
    }
    crowd.pop();
    // Its seat is free when its thread has seen that it left.
    until("a seat is free", || ask(&served.path, "x").is_ok_and(|answer| !answer.is_refused));
}

#[test]
fn a_client_of_another_user_is_refused_and_not_read() {
    if !geteuid().is_root() {
        return skip("to be another user, a thread must have been root");
    }
    let served = served("stranger");
    fs::set_permissions(&served.path, Permissions::from_mode(0o666)).unwrap();
    let stranger = || {
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        let mut client = UnixStream::connect(&served.path).unwrap();
        let _ = client.write_all(b"one\n");
        let _ = client.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        answer
    };
    let answer = thread::scope(|scope| scope.spawn(stranger).join().unwrap());
    assert!(answer.starts_with("error: user 65534 may not speak here; be the user"), "{answer}");
    assert_eq!(answer.lines().count(), 2);
    assert_eq!(served.echo.lines.load(Ordering::SeqCst), 0);
    fs::set_permissions(&served.path, Permissions::from_mode(0o600)).unwrap();
    let denied = || {
        set_thread_uid(Uid::from_raw(65534)).unwrap();
        UnixStream::connect(&served.path).is_err()
    };
    assert!(thread::scope(|scope| scope.spawn(denied).join().unwrap()));
}

#[test]
fn what_goes_on_ends_when_the_client_leaves_or_says_its_next_line() {
    let served = served("watch");
    let ticks = ["tick 0", "tick 1", "tick 2"].map(|line| Heard::Line(line.to_owned()));
    let mut client = Client::connect(&served.path).unwrap();
    client.wait_at_most(None).unwrap();
    client.say("watch", &[]).unwrap();
    assert_eq!(ticks.clone().map(|_| client.hear().unwrap()), ticks);
    client.say("one", &[]).unwrap();
    assert_eq!(client.hear().unwrap(), Heard::End);
    assert_eq!(client.hear().unwrap(), Heard::Line("one".to_owned()));
    assert_eq!(client.hear().unwrap(), Heard::End);

    client.say("watch", &[]).unwrap();
    assert_eq!(ticks.clone().map(|_| client.hear().unwrap()), ticks);
    drop(client);
    until("it sees that no client listens", || served.echo.gone.load(Ordering::SeqCst) == 2);
    // A next line that is there before the answer begins ends it, too.
    assert_eq!(answers_to(&served.path, b"watch\none\n"), "tick 0\n\none\n\n");
}

#[test]
fn descriptors_go_both_ways_and_refusals_close_them() {
    let served = served("rights");
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut client = Client::connect(&served.path).unwrap();
    let many = vec![theirs.as_fd(); DESCRIPTORS_MAX];
    let wrong = client.ask_with("hello", &many).unwrap();
    assert!(wrong.is_refused && wrong.lines == ["what are they for?"], "{wrong:?}");
    assert_eq!(client.ask_with("take", &[theirs.as_fd(); 2]).unwrap().lines, ["took 2"]);
    drop(theirs);
    let given = client.ask("give").unwrap();
    assert_eq!((&given.lines[..], given.descriptors.len()), (&["2 of them".to_owned()][..], 2));
    for descriptor in given.descriptors {
        UnixStream::from(descriptor).write_all(b"!").unwrap();
    }
    let mut text = String::new();
    // It ends when no descriptor is open any more, neither of those that were refused nor of those that went back.
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "!!");
}

#[test]
fn the_file_is_the_owners_alone_and_goes_with_the_socket_and_conversations_end() {
    let served = served("mode");
    let mode = fs::symlink_metadata(&served.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = BufReader::new(UnixStream::connect(&served.path).unwrap());
    client.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    client.get_mut().write_all(b"one\n").unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    let mut watching = Client::connect(&served.path).unwrap();
    watching.say("watch", &[]).unwrap();
    while watching.hear().unwrap() != Heard::Line("tick 2".to_owned()) {}
    drop(served.socket);
    assert!(!served.path.exists());
    client.read_to_string(&mut line).unwrap();
    assert_eq!(line, "one\n\n");
    assert_eq!(watching.hear().unwrap(), Heard::End);
    assert!(watching.hear().unwrap_err().to_string().contains("it may have ended"));
    let refused = ask(&served.path, "one").unwrap_err().to_string();
    assert!(refused.starts_with("cannot talk to "), "{refused}");
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

#[test]
fn what_an_answer_keeps_lasts_as_long_as_the_conversation() {
    let served = served("kept");
    let gone = || served.echo.gone.load(Ordering::SeqCst);
    for (n, ends) in ["quit", "panic"].into_iter().enumerate() {
        let mut client = Client::connect(&served.path).unwrap();
        for line in ["keep", "one", "no"] {
            client.ask(line).unwrap();
        }
        assert_eq!(gone(), n);
        // However it ends.
        client.say(ends, &[]).unwrap();
        until("it is dropped", || gone() == n + 1);
    }
}

#[test]
fn a_successor_serves_on_at_the_same_path_and_no_client_is_refused() {
    let first = served("successor");
    let asks = Client::connect(&first.path).unwrap();
    let adopt = || ControlSocket::adopt(&asks, first.socket.listener().unwrap());
    drop(adopt().unwrap());
    assert!(first.path.exists(), "the file is not that of one that never serves");
    let mut successor = adopt().unwrap();
    let before = first.echo;
    first.socket.let_go();
    // No thread accepts at this moment; a client waits.
    let mut early = UnixStream::connect(&first.path).unwrap();
    early.write_all(b"one\nquit\n").unwrap();
    let echo = Arc::new(Echo::default());
    successor.serve(Arc::new(Arc::clone(&echo))).unwrap();
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "one\n\n\n");
    assert_eq!((before.lines.load(Ordering::SeqCst), echo.lines.load(Ordering::SeqCst)), (0, 2));
    drop(successor);
    assert!(!first.path.exists(), "the file is the successor's");

    let other = served("other");
    let asks = Client::connect(&other.path).unwrap();
    for no_listener in
        [OwnedFd::from(UnixStream::pair().unwrap().0), File::open("/").unwrap().into()]
    {
        assert!(ControlSocket::adopt(&asks, no_listener).is_err());
    }
    let elsewhere = served("elsewhere");
    let why = ControlSocket::adopt(&asks, elsewhere.socket.listener().unwrap());
    let why = why.unwrap_err().to_string();
    assert!(why.contains("another path"), "{why}");
}

#[test]
fn a_successor_may_spell_the_path_otherwise() {
    let first = served("spelled");
    let folder = first.path.parent().unwrap();
    let link = first.path.with_extension("link");
    std::os::unix::fs::symlink(folder, &link).unwrap();
    let name = first.path.file_name().unwrap();
    for path in [link.join(name), folder.join(".").join(name)] {
        let asks = Client::connect(&path).unwrap();
        let adopted = ControlSocket::adopt(&asks, first.socket.listener().unwrap());
        adopted.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
    fs::remove_file(&link).unwrap();
}

#[test]
fn a_folder_that_another_program_keeps_locked_is_no_reason_to_hang() {
    let folder = path("locked");
    fs::create_dir(&folder).unwrap();
    let held = File::open(&folder).unwrap();
    held.lock().unwrap();
    let path = folder.join("a.sock");
    let refused = ControlSocket::open(&path).unwrap_err().to_string();
    assert!(refused.contains("keeps its folder locked"), "{refused}");
    held.unlock().unwrap();
    drop(ControlSocket::open(&path).unwrap());
    fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_program_that_accepts_no_client_is_neither_removed_nor_waited_for() {
    let path = path("stuck");
    let _stuck = bind(&path).unwrap();
    // As many as wait to be accepted, and no more.
    let mut waiting = Vec::new();
    while let Ok(client) = connect(&path, None) {
        waiting.push(client);
    }
    let refused = ControlSocket::open(&path).unwrap_err().to_string();
    assert!(refused.contains("answers no client"), "{refused}");
    let error = connect(&path, Some(Duration::from_millis(10))).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    fs::remove_file(&path).unwrap();
}
