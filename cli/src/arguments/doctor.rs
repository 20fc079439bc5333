//! The arguments of `laneway doctor`.

use clap::{ArgGroup, Args};
use laneway_terminal::duration;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const EXAMPLES: &str = "\
Looks at what an app asks of this host so that it carries a load over a stall: every queue must
hold what arrives while the app is stalled, rate x stall datagrams, and a socket's buffer that times what
the kernel charges for one (its truesize). Says what is, what should be, and why. Changes nothing
without --fix. --depth shows what a ring carries instead: so many sends in flight, each done after
--stall.

Exit codes: 0 nothing is too small, 1 something is, or a setting could not go back because another program
changed it since, 2 bad usage, or settings that could not be changed.

Examples:
  laneway doctor --app echo --rate 307000 --size 1316 --stall 10ms
  laneway doctor --app echo --rate 307000 --size 1316 --stall 10ms --output 90-laneway.conf
  sudo laneway doctor --app echo --rate 307000 --size 1316 --stall 10ms --fix --undo undo.conf
  sudo laneway doctor --undo undo.conf
  laneway doctor --depth 128 --stall 3.26us";

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["app", "depth", "undo"])))]
pub(crate) struct DoctorArguments {
    /// The app that is to carry the load
    #[arg(long, value_name = "APP", requires_all = ["rate", "size", "stall"], conflicts_with = "depth")]
    pub(crate) app: Option<String>,
    /// Datagrams per second that come in
    #[arg(long, value_name = "PER_SECOND", requires = "app")]
    pub(crate) rate: Option<u64>,
    /// Bytes of UDP payload of each
    #[arg(long, value_name = "BYTES", requires = "app")]
    pub(crate) size: Option<u64>,
    /// How long app or interface may stand still, with ns, us, ms or s
    #[arg(long, value_name = "TIME", value_parser = stall)]
    pub(crate) stall: Option<Duration>,
    /// Datagrams that leave for one that comes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) outputs: u64,
    /// Multicast groups that are received
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) groups: u64,
    /// Sends in flight: how many per second they carry when each is done after --stall
    #[arg(long, value_name = "N", requires = "stall", conflicts_with = "undo",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) depth: Option<u64>,
    /// Write the settings that are too small, as a file for /etc/sysctl.d
    #[arg(long, value_name = "FILE", requires = "app")]
    pub(crate) output: Option<PathBuf>,
    /// Change the settings that are too small, now and until the next boot
    #[arg(long, requires_all = ["app", "undo"])]
    pub(crate) fix: bool,
    /// With --fix: keep in this file what the settings were. Without: put them back from it
    #[arg(long, value_name = "FILE")]
    pub(crate) undo: Option<PathBuf>,
}

/// A time that may be shorter than a millisecond. Its unit must be there: a stall of `10` is hardly one of ten seconds.
fn stall(text: &str) -> Result<Duration, String> {
    const HELP: &str = "use a number with its unit, ns, us, ms or s, such as 10ms";
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(HELP.to_owned());
    }
    let short = [("ns", 1e-9), ("us", 1e-6), ("\u{b5}s", 1e-6)];
    let Some((number, unit_s)) =
        short.iter().find_map(|(unit, unit_s)| Some((text.strip_suffix(unit)?, unit_s)))
    else {
        return duration(text);
    };
    let time =
        number.parse::<f64>().ok().and_then(|n| Duration::try_from_secs_f64(n * unit_s).ok());
    let time = time.ok_or_else(|| HELP.to_owned())?;
    if time.is_zero() { Err("use more than 0".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_may_be_shorter_than_a_millisecond() {
        let ns = |text| stall(text).map(|time| time.as_nanos());
        assert_eq!((ns("3.26us"), ns("26ns"), ns("10ms")), (Ok(3260), Ok(26), Ok(10_000_000)));
        for text in ["us", "0ns", "-1us", "nanus", "1e300us", "", "10", "3.26"] {
            assert!(stall(text).is_err(), "{text:?}");
        }
    }
}
