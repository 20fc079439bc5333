//! `laneway gen mcast`: what a race of fan-out sends, by hand.

use super::{opened, terminal};
use crate::arguments::McastArguments;
use laneway_core::CapsReport;
use laneway_engine::Control;
use laneway_lab::multicast::{Cast, Outlet, Sent};
use laneway_page::text::{aligned, grouped};
use laneway_registry::LaneTable;
use laneway_terminal::{Exit, Failure};
use serde_json::json;

pub(super) fn run<L: LaneTable>(arguments: &McastArguments, json: bool) -> Result<Exit, Failure> {
    let cast = Cast {
        to: arguments.to,
        groups: arguments.groups,
        from: arguments.from,
        payload_bytes: arguments.bytes,
        per_second: arguments.rate,
        burst: arguments.burst,
        poisson: arguments.poisson,
        hop_limit: arguments.ttl,
        length: arguments.duration,
    };
    let outlet = Outlet {
        lane: &arguments.lane,
        interface: &arguments.on,
        cpu: arguments.cpu,
        force: arguments.force,
    };
    let control = Control::default();
    let stop = control.stop.clone();
    terminal::on_signal(None, json, move || stop.request())?;
    let on_open = |obtained: &CapsReport| {
        if !json {
            let place = format!("on {}", arguments.on);
            terminal::note(&opened(&arguments.lane.to_string(), &place, obtained));
        }
    };
    let sent = cast.send::<L>(outlet, &control, on_open).map_err(Failure::input)?;
    if json {
        let value = json!({ "verb": "gen", "source": "mcast", "plan": cast, "sent": sent });
        terminal::print_json(&value, false)?;
    } else {
        print_report(&cast, &sent);
    }
    Ok(Exit::Done)
}

fn print_report(cast: &Cast, sent: &Sent) {
    let generator = &sent.generator;
    let groups = match cast.groups {
        1 => format!("to {}", cast.to),
        n => format!("to {} groups from {} on", grouped(n.into()), cast.to),
    };
    terminal::note(&format!(
        "{} datagrams of {} bytes were sent {groups}, from {}",
        grouped(generator.sent),
        cast.payload_bytes,
        sent.from
    ));
    let refused = [("refused by the lane", generator.refused, "")];
    if generator.refused > 0 {
        terminal::note(aligned(&refused).trim_end());
    }
    terminal::note(&format!(
        "rate: {:.1} datagrams/s (asked for {:.1})",
        generator.achieved_pps, generator.asked_pps
    ));
    terminal::note(&format!(
        "late: p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        generator.late_p50_ns as f64 / 1e3,
        generator.late_p99_ns as f64 / 1e3,
        generator.late_max_ns as f64 / 1e3
    ));
}
