//! State reported to the supervisor of a service: systemd, or another program that sets `NOTIFY_SOCKET`.
//!
//! One datagram of lines to a Unix socket, as sd_notify(3) says. A report that cannot be sent is dropped: a service
//! that runs is not ended for it.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

/// The variable that says where.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The supervisor, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    at: Option<SocketAddr>,
}

impl Supervisor {
    /// The one that the environment names.
    pub fn of_environment() -> Supervisor {
        let named = env::var_os(VARIABLE).and_then(|at| address(at.as_bytes()).ok());
        Supervisor { at: named }
    }

    /// True when there is one.
    pub fn is_there(&self) -> bool {
        self.at.is_some()
    }

    /// The service does what it is for.
    pub fn ready(&self) {
        self.notify("READY=1\n");
    }

    /// It is about to read its configuration again; `now` is the monotonic clock's time. [`ready`](Self::ready)
    /// follows, done or failed.
    pub fn reloading(&self, now: Duration) {
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", now.as_micros()));
    }

    /// It is about to end.
    pub fn stopping(&self) {
        self.notify("STOPPING=1\n");
    }

    fn notify(&self, lines: &str) {
        let Some(at) = &self.at else { return };
        let _ =
            UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(lines.as_bytes(), at));
    }
}

/// A path, or behind `@` a name that no file has.
fn address(text: &[u8]) -> io::Result<SocketAddr> {
    match text {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn a_notification_arrives_by_name_and_none_is_sent_without_a_listener() {
        let name = format!("laneway-supervisor-{}", process::id());
        let at = address(format!("@{name}").as_bytes()).unwrap();
        let socket = UnixDatagram::bind_addr(&at).unwrap();
        let supervisor = Supervisor { at: Some(at) };
        supervisor.ready();
        supervisor.reloading(Duration::from_micros(7));
        supervisor.stopping();
        let mut bytes = [0; 64];
        for wanted in ["READY=1\n", "RELOADING=1\nMONOTONIC_USEC=7\n", "STOPPING=1\n"] {
            let n = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..n], wanted.as_bytes());
        }
        drop(socket);
        supervisor.ready();
        Supervisor::default().ready();
        assert!(address(&[b'x'; 200]).is_err());
    }
}
