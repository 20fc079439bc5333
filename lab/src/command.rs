//! An arm's command line: any program, in any language, that is started as an arm.
//!
//! ```text
//!   "python3 echo.py {address} {port}" ─ words, as a shell would split them ─ holes checked by app
//!        └─ in the arm's process: holes filled in ─▶ python3 echo.py 10.77.0.2 7000
//! ```
//!
//! No shell is started: quotes group words, and nothing else of a shell's language means anything. What the
//! program is to do follows from where the app's race counts ([`Task`]). `{{port}}` is `{port}` as it stands.

use crate::fanout::{Fanout, onward_address};
use laneway_kinds::{AppFacts, Counted, Traffic};
use laneway_spec::nearest;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Longest command line, bytes.
const COMMAND_BYTES_MAX: usize = 4_096;
/// Words of a shell's language that mean nothing here.
const OF_A_SHELL: [&str; 8] = ["|", "||", "&", "&&", ";", ">", ">>", "<"];

/// What is asked of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// To answer the pings to an address.
    Answer,
    /// To answer what it is asked over TCP connections.
    Serve,
    /// To send each packet back.
    SendBack,
    /// To send each packet on, out of the other of two ports.
    SendOn,
    /// To receive, and to print how much it did.
    Receive,
}

impl Task {
    /// Of an arm of `app`.
    pub(crate) fn of(app: &AppFacts) -> Task {
        match (app.race.counted, app.race.ports) {
            (Counted::Replies, _) => Task::Answer,
            (Counted::Answered, _) => Task::Serve,
            (Counted::Forwarded | Counted::Copies, _) | (Counted::Returned, 2..) => Task::SendOn,
            (Counted::Returned, _) => Task::SendBack,
            (Counted::Handed | Counted::Records, _) => Task::Receive,
        }
    }
}

/// What a program may be given, by the name of its hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    /// The address that it has.
    Address,
    /// The UDP or TCP port that it listens on.
    Port,
    /// Where datagrams that it sends on go, `ADDRESS:PORT`.
    To,
    /// The interface of its first port.
    First,
    /// The interface of its second port.
    Second,
    /// Its CPU.
    Cpu,
    /// The first multicast group that it receives.
    Group,
    /// All of them, with commas between.
    Groups,
    /// Where copies go, `INTERFACE:PORT`, with commas between; to the group that each was received for.
    Outputs,
    /// The interface of a cable on the way out.
    Out(u8),
    /// The address that it has there.
    From(u8),
}

const HOLES: [(&str, Hole); 28] = [
    ("address", Hole::Address),
    ("port", Hole::Port),
    ("to", Hole::To),
    ("interface", Hole::First),
    ("port0", Hole::First),
    ("interface1", Hole::Second),
    ("port1", Hole::Second),
    ("cpu", Hole::Cpu),
    ("in", Hole::First),
    ("group", Hole::Group),
    ("groups", Hole::Groups),
    ("outputs", Hole::Outputs),
    ("out0", Hole::Out(0)),
    ("out1", Hole::Out(1)),
    ("out2", Hole::Out(2)),
    ("out3", Hole::Out(3)),
    ("out4", Hole::Out(4)),
    ("out5", Hole::Out(5)),
    ("out6", Hole::Out(6)),
    ("out7", Hole::Out(7)),
    ("from0", Hole::From(0)),
    ("from1", Hole::From(1)),
    ("from2", Hole::From(2)),
    ("from3", Hole::From(3)),
    ("from4", Hole::From(4)),
    ("from5", Hole::From(5)),
    ("from6", Hole::From(6)),
    ("from7", Hole::From(7)),
];

impl Hole {
    /// Whether an arm of `app` has such a thing.
    fn is_of(self, app: &AppFacts) -> bool {
        let task = Task::of(app);
        let is_copied = app.race.counted == Counted::Copies;
        let is_addressed = match app.race.counted {
            Counted::Answered => true,
            // To groups, which are no address of its own.
            Counted::Copies => false,
            Counted::Forwarded => false,
            _ => app.race.traffic.contains(&Traffic::Udp),
        };
        match self {
            Hole::Address => task == Task::Answer || is_addressed,
            Hole::Port => is_addressed || is_copied,
            Hole::Group | Hole::Groups | Hole::Outputs => is_copied,
            Hole::Out(cable) | Hole::From(cable) => {
                is_copied && usize::from(cable) + 1 < app.race.ports
            }
            Hole::To => is_addressed && task == Task::SendOn,
            Hole::Second => app.race.ports > 1,
            Hole::First | Hole::Cpu => true,
        }
    }
}

/// Where an arm is, for what fills the holes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// Where it listens, or the address whose pings it answers.
    pub(crate) address: SocketAddrV4,
    /// Where what it sends on goes.
    pub(crate) onward: SocketAddrV4,
    /// Its interfaces, one per port.
    pub(crate) interfaces: &'a [String],
    /// What it is to copy where, if that is what it does.
    pub(crate) fanout: Option<Fanout>,
    /// Its CPU.
    pub(crate) cpu: usize,
}

/// A command line, split and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    words: Vec<Vec<Part>>,
    /// What is sent to its app has an address.
    is_addressed: bool,
}

/// A piece of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Hole(Hole),
}

impl CommandLine {
    /// Reads the command line of an arm of `app`.
    ///
    /// # Errors
    /// A sentence: it cannot be split, or has a hole that nothing fills.
    pub(crate) fn read(text: &str, app: &AppFacts) -> Result<CommandLine, String> {
        if text.len() > COMMAND_BYTES_MAX || text.contains('\0') {
            return Err(format!("use at most {COMMAND_BYTES_MAX} bytes, none of them zero"));
        }
        let words = shlex::split(text).ok_or("a quote or a backslash at the end is left open")?;
        if words.first().is_none_or(String::is_empty) {
            return Err("give the program and its arguments".to_owned());
        }
        if let Some(word) = words.iter().find(|word| OF_A_SHELL.contains(&word.as_str())) {
            return Err(format!(
                "no shell is started, so `{word}` would be an argument: write sh -c '...' around it"
            ));
        }
        let words = words.iter().map(|word| parts(word, app)).collect::<Result<_, _>>()?;
        Ok(CommandLine { words, is_addressed: Hole::Port.is_of(app) })
    }

    /// The words, holes filled in.
    pub(crate) fn fill(&self, site: &Site<'_>) -> Vec<String> {
        let interface = |port: usize| site.interfaces.get(port).cloned().unwrap_or_default();
        let filled = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Hole(Hole::Address) => site.address.ip().to_string(),
            Part::Hole(Hole::Port) => site.address.port().to_string(),
            Part::Hole(Hole::To) => site.onward.to_string(),
            Part::Hole(Hole::First) => interface(0),
            Part::Hole(Hole::Second) => interface(1),
            Part::Hole(Hole::Cpu) => site.cpu.to_string(),
            Part::Hole(Hole::Group) => site.address.ip().to_string(),
            Part::Hole(Hole::Groups) => {
                listed(site.fanout.iter().flat_map(Fanout::groups).map(|group| *group.ip()))
            }
            Part::Hole(Hole::Outputs) => {
                let outputs = site.fanout.iter().flat_map(Fanout::outputs);
                listed(outputs.map(|output| format!("{}:{}", output.interface(), output.port)))
            }
            Part::Hole(Hole::Out(cable)) => interface(1 + usize::from(*cable)),
            Part::Hole(Hole::From(cable)) => onward_address(*cable).to_string(),
        };
        self.words.iter().map(|word| word.iter().map(filled).collect()).collect()
    }

    /// Whether it listens, so that datagrams are to be addressed to it: it is given its address, or nothing at
    /// all, and knows it from elsewhere.
    pub(crate) fn listens(&self) -> bool {
        let names = |hole| {
            matches!(hole, Hole::Address | Hole::Port | Hole::To | Hole::Group | Hole::Groups)
        };
        let is_given = self.has(names);
        self.is_addressed && (is_given || !self.is_given_interface())
    }

    /// Whether it is given an interface: then it may have no socket that can be seen.
    pub(crate) fn is_given_interface(&self) -> bool {
        self.has(|hole| matches!(hole, Hole::First | Hole::Second))
    }

    /// The program, unless its name has a hole.
    pub(crate) fn program(&self) -> Option<&str> {
        match self.words.first().map(Vec::as_slice) {
            Some([Part::Text(text)]) => Some(text),
            _ => None,
        }
    }

    fn has(&self, is_wanted: impl Fn(Hole) -> bool) -> bool {
        let mut parts = self.words.iter().flatten();
        parts.any(|part| matches!(part, Part::Hole(hole) if is_wanted(*hole)))
    }
}

fn listed(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// What an arm is called that has no name: the file names of its program and, where that is an interpreter's script
/// or the like, of its first argument.
pub(crate) fn name_of(text: &str) -> String {
    let words = shlex::split(text).unwrap_or_default();
    let is_plain = |(at, word): &(usize, &String)| *at == 0 || !word.starts_with(['-', '{']);
    let plain = words.iter().enumerate().take(2).take_while(is_plain);
    let files = plain.map(|(_, word)| Path::new(word).file_name().unwrap_or_else(|| word.as_ref()));
    let names: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    // An argument with a hole or a blank in it says more than a name should.
    match names.as_slice() {
        [] => text.to_owned(),
        [program, argument] if argument.contains(['{', ' ']) => program.clone(),
        names => names.join(" "),
    }
}

/// The file of a program, as a shell finds it.
///
/// # Errors
/// A sentence: it is not there, or no program.
pub(crate) fn find(program: &str) -> Result<PathBuf, String> {
    let is_file = |path: &Path| path.is_file();
    if program.contains('/') {
        let path = Path::new(program);
        return match (is_file(path), is_executable(path)) {
            (true, true) => Ok(path.to_owned()),
            (true, false) => Err(format!(
                "`{program}` is not executable; try `chmod +x {program}`, or name its interpreter in front of it"
            )),
            (false, _) => Err(format!(
                "there is no file `{program}`; a path counts from the folder that laneway is started in"
            )),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|path| is_file(path) && is_executable(path)).ok_or_else(|| {
        let hint = match program.contains('=') {
            true => "no shell is started: write `env NAME=value program ...`".to_owned(),
            false if is_file(Path::new(program)) => format!("did you mean `./{program}`?"),
            false => "install it, or give its path".to_owned(),
        };
        format!("there is no program `{program}` in PATH; {hint}")
    })
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}

/// Splits a word at its holes.
fn parts(word: &str, app: &AppFacts) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        // `{{port}}` is `{port}`.
        if let Some((name, after)) = behind.strip_prefix('{').and_then(braced)
            && let Some(after) = after.strip_prefix('}')
        {
            text.push_str(&format!("{{{name}}}"));
            rest = after;
        } else if let Some((name, after)) = braced(behind) {
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Hole(hole(name, app)?));
            rest = after;
        } else {
            text.push('{');
            rest = behind;
        }
    }
    text.push_str(rest);
    if !text.is_empty() || parts.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

/// The name behind an opening brace, and what follows the closing one.
fn braced(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.split_once('}')?;
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_name))
        .then_some((name, after))
}

fn hole(name: &str, app: &AppFacts) -> Result<Hole, String> {
    let known: Vec<&str> =
        HOLES.iter().filter(|(_, hole)| hole.is_of(app)).map(|(name, _)| *name).collect();
    let all: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
    let list = format!("an arm of app {} gets {} from the race", app.name, all.join(", "));
    match HOLES.iter().find(|(is, _)| *is == name) {
        Some((_, hole)) if hole.is_of(app) => Ok(*hole),
        Some(_) => Err(format!("there is no `{{{name}}}` here: {list}")),
        None => {
            let meant = match nearest(name, &known) {
                Some(name) => format!("did you mean `{{{name}}}`? "),
                None => String::new(),
            };
            Err(format!(
                "nothing is called `{{{name}}}`: {meant}{list}; `{{{{{name}}}}}` is `{{{name}}}` as it stands"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::{Across, Bounce, Count, Flood, LabApp};
    use crate::tables::{Tables, TablesOf};
    use laneway_registry::{Apps, Lanes};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn site(interfaces: &[String]) -> Site<'_> {
        let end = |net, host, port| SocketAddrV4::new([10, net, 0, host].into(), port);
        let (address, onward) = (end(77, 2, 7000), end(78, 1, 7001));
        Site { address, onward, interfaces, fanout: None, cpu: 3 }
    }

    fn filled(text: &str, app: &AppFacts) -> Vec<String> {
        let interfaces = ["sut0".to_owned(), "sut1".to_owned()];
        CommandLine::read(text, app).unwrap().fill(&site(&interfaces))
    }

    #[test]
    fn words_are_split_as_by_a_shell_and_holes_are_filled() {
        for (text, words) in [
            (
                "my-server --listen {address}:{port}",
                &["my-server", "--listen", "10.77.0.2:7000"][..],
            ),
            ("'my server' \"{port} and\" a\\ b", &["my server", "7000 and", "a b"]),
            ("x {port0} {interface} --cpu={cpu}", &["x", "sut0", "sut0", "--cpu=3"]),
            ("awk '{{print}} { } {1} {A}{port}'", &["awk", "{print} { } {1} {A}7000"]),
            ("x ''", &["x", ""]),
            ("x $HOME {", &["x", "$HOME", "{"]),
        ] {
            assert_eq!(filled(text, &Bounce::FACTS), words, "{text}");
        }
        let words = filled("relay {port0} {port1} {interface1} {to}", &Across::FACTS);
        assert_eq!(words, ["relay", "sut0", "sut1", "sut1", "10.78.0.1:7001"]);
    }

    #[test]
    fn a_relay_is_given_its_groups_and_its_outputs() {
        let fanout = Fanout {
            groups: 2,
            outputs: 3,
            cables: 2,
            limit_mbit: None,
            far_end: Default::default(),
        };
        let race = fanout.raced(Flood::FACTS.race);
        let app = AppFacts { race, ..Flood::FACTS };
        let interfaces = ["sut0", "sut1", "sut2"].map(str::to_owned);
        let address = fanout.first_group();
        let site = Site { address, fanout: Some(fanout), ..site(&interfaces) };
        let text = "x {in} {group} {groups} {port} {outputs} {out1} {from1}";
        let line = CommandLine::read(text, &app).unwrap();
        let outputs = "sut1:7000,sut2:7000,sut1:7001";
        let groups = "239.77.0.1,239.77.0.2";
        let words = ["x", "sut0", "239.77.0.1", groups, "7000", outputs, "sut2", "10.79.0.2"];
        assert_eq!(line.fill(&site), words);
        assert!(line.listens());
        let why = CommandLine::read("x {out2}", &app).unwrap_err();
        assert!(why.contains("no `{out2}` here") && why.contains("{outputs}"), "{why}");
        assert!(CommandLine::read("x {groups}", &Bounce::FACTS).is_err());
    }

    #[test]
    fn a_mistyped_command_line_is_answered_with_what_is_known() {
        let tables = TablesOf::<Apps, Lanes>::new();
        let app = |name: &str| tables.app(name).unwrap();
        let too_long = "x".repeat(COMMAND_BYTES_MAX + 1);
        for (text, app, part) in [
            ("", app("bounce"), "give the program"),
            ("   ", app("bounce"), "give the program"),
            ("'' x", app("bounce"), "give the program"),
            ("x 'y", app("bounce"), "left open"),
            ("x \\", app("bounce"), "left open"),
            ("x {prot}", app("bounce"), "did you mean `{port}`"),
            ("x {prot}", app("bounce"), "{address}, {port}, {interface}, {port0}, {cpu}"),
            ("x {print}", app("bounce"), "`{{print}}` is `{print}` as it stands"),
            ("x {port1}", app("bounce"), "there is no `{port1}` here"),
            ("x {to}", app("bounce"), "there is no `{to}` here"),
            ("x {port}", app("echo"), "there is no `{port}` here"),
            ("x {address}", app("forward"), "there is no `{address}` here"),
            ("x {address}", app("features"), "there is no `{address}` here"),
            ("x {port} | tee log", app("bounce"), "no shell is started, so `|`"),
            ("x {port} &", app("bounce"), "no shell is started, so `&`"),
            ("x\0", app("bounce"), "none of them zero"),
            (&too_long, app("bounce"), "at most 4096 bytes"),
        ] {
            let why = CommandLine::read(text, app).expect_err(text);
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    proptest! {
        #[test]
        fn any_command_line_is_words_or_a_sentence(text in "[ -~]{0,60}", name in ".{0,40}") {
            for text in [&text, &name] {
                let _ = name_of(text);
                if let Err(why) = CommandLine::read(text, &Bounce::FACTS) {
                    prop_assert!(why.contains(' '), "{}", why);
                }
            }
        }

        #[test]
        fn quoted_words_come_to_the_program_as_they_are(
            words in vec("[^{|&;<>\\x00]{1,12}", 1..6)
        ) {
            let text = shlex::try_join(words.iter().map(String::as_str)).unwrap();
            prop_assert_eq!(filled(&text, &Bounce::FACTS), words);
        }
    }

    #[test]
    fn what_is_asked_of_a_program_follows_from_where_its_race_counts() {
        let tables = TablesOf::<Apps, Lanes>::new();
        for (app, task) in [
            ("echo", Task::Answer),
            ("bounce", Task::SendBack),
            ("across", Task::SendOn),
            ("forward", Task::SendOn),
            ("count", Task::Receive),
            ("features", Task::Receive),
        ] {
            assert_eq!(Task::of(tables.app(app).unwrap()), task, "{app}");
        }
    }

    #[test]
    fn a_program_that_is_given_an_interface_alone_is_sent_frames() {
        for (text, address, interface) in [
            ("x {port}", true, false),
            ("x {interface}", false, true),
            ("x {interface} {address}", true, true),
            ("x --config file", true, false),
        ] {
            let line = CommandLine::read(text, &Count::FACTS).unwrap();
            assert_eq!((line.listens(), line.is_given_interface()), (address, interface));
        }
        let tables = TablesOf::<Apps, Lanes>::new();
        for (text, app) in [("x", "forward"), ("x {address}", "echo"), ("x", "features")] {
            assert!(!CommandLine::read(text, tables.app(app).unwrap()).unwrap().listens(), "{app}");
        }
    }

    #[test]
    fn an_arm_is_called_by_its_program_and_its_script() {
        for (text, name) in [
            ("/usr/local/bin/my-server --listen {address}:{port}", "my-server"),
            ("python3 examples/echo.py {address} {port}", "python3 echo.py"),
            ("./echo {address} {port}", "echo"),
            ("socat UDP4-LISTEN:{port},fork PIPE", "socat"),
            ("sh -c 'exec x'", "sh"),
            ("nc 'a b'", "nc"),
            ("'open", "'open"),
        ] {
            assert_eq!(name_of(text), name, "{text}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_try() {
        assert_eq!(find("sh").map(|path| path.is_file()), Ok(true));
        for (program, part) in [
            ("no-such-program-at-all", "in PATH; install it"),
            ("LOG=1", "env NAME=value"),
            ("./no/such/file", "there is no file"),
            (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "chmod +x"),
        ] {
            let why = find(program).expect_err(program);
            assert!(why.contains(part), "{why}");
        }
    }
}
