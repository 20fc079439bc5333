//! A cable with a store at one end and its clients at the other, each in a namespace of its own.
//!
//! ```text
//!   far: 10.77.0.2 to .11 ── cable ── near: 10.77.0.1, the store on a lane, or `redis-server`
//! ```

use laneway_netns::{Mac, Namespace, VethEnd, VethOptions, VethPair, can_create};
use laneway_testkit::skip;
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The binary under test.
pub(crate) const LANEWAY: &str = env!("CARGO_BIN_EXE_laneway");
pub(crate) const STORE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 6379);
/// Addresses that clients have.
pub(crate) const SOURCES: u64 = 10;
/// How long a start, a reply or the end of a round may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The lane that is no lane: `redis-server`.
pub(crate) const REDIS: &str = "";

/// A store that runs; ends with the test, however that ends.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cable with a namespace at each end, and the processes on it.
pub(crate) struct World {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    _cable: VethPair,
}

impl World {
    /// `None`, with the reason printed, where there can be none.
    pub(crate) fn new(lane: &str) -> Option<World> {
        if let Err(why) = can_create() {
            skip(why);
            return None;
        }
        let [near, far] = ["near", "far"].map(|name| Namespace::create(name).expect("it can be"));
        // A stack of our own has the address itself.
        let own: &[&str] = if lane == "packet" { &[] } else { &["10.77.0.1/24"] };
        let sources: Vec<String> = (0..SOURCES).map(|n| format!("{}/24", source(n))).collect();
        let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
        let mut far_end = VethEnd::new(Mac([2, 0, 0, 0, 0, 2]), &sources).expect("addresses");
        // The defaults of a veth.
        (far_end.offloads.gso, far_end.offloads.tso, far_end.offloads.tx_checksum) =
            (true, true, true);
        let options = VethOptions {
            a: VethEnd::new(Mac([2, 0, 0, 0, 0, 1]), own).expect("an address"),
            b: far_end,
            ..VethOptions::default()
        };
        let cable = VethPair::create(&near, "near0", &far, "far0", &options).expect("a cable");
        Some(World { near, far, _cable: cable })
    }

    /// A server for so many clients, which answers.
    pub(crate) fn start(&self, lane: &str, clients: u64, more: &[&str]) -> Running {
        let most = (clients + 10).to_string();
        let at = STORE.to_string();
        let mut command = match lane {
            REDIS => {
                let mut command = self.near.command("redis-server");
                command.args(["--bind", "10.77.0.1", "--port", "6379", "--save", ""]);
                command
            }
            _ => {
                let mut command = self.near.command(LANEWAY);
                command.args(["run", "kv", "--lane", lane, "--listen", &at]);
                if lane == "packet" {
                    command.args(["--on", "near0"]);
                }
                command
            }
        };
        command.args(["--protected-mode", "no", "--maxclients", &most]).args(more);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut running = Running(child.expect("the program starts"));
        let until = Instant::now() + PATIENCE;
        while self.far.enter(|| opened(0).is_none()).expect("it is there") {
            assert!(Instant::now() < until, "{lane} does not serve");
            assert!(running.0.try_wait().expect("our child").is_none(), "{lane} has ended");
            thread::sleep(Duration::from_millis(20));
        }
        running
    }
}

pub(crate) fn source(round: u64) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + (round % SOURCES) as u8)
}

/// A connection from that round's address; `None` if there is none.
pub(crate) fn opened(round: u64) -> Option<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).ok()?;
    bind(&socket, &SocketAddr::from((source(round), 0))).ok()?;
    connect(&socket, &SocketAddr::from(STORE)).ok()?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}
