//! The generator of a race where a client asks over connections: opens them, asks in every segment what its plan says,
//! and sees to them in between.

use super::pipe;
use super::priority::go_first;
use crate::client::{Client, ClientPlan, Conversation, Gets, SameBytes, Values};
use crate::plan::{Order, Ready, Reply};
use crate::timetable::{Times, Timetable};
use laneway_core::CapsReport;
use laneway_kinds::Protocol;

/// Is the client of `plan` until asked to stop.
///
/// # Errors
/// A sentence: a connection that cannot be opened.
pub(super) fn serve(plan: &ClientPlan, times: &Times, cpu: usize) -> Result<(), String> {
    let timetable = Timetable::of(times).map_err(|error| error.to_string())?;
    match (plan.protocol, plan.datagrams) {
        (Protocol::Echo, _) => ask_by_plan::<SameBytes>(plan, timetable, cpu),
        (Protocol::Resp, None) => ask_by_plan::<Values>(plan, timetable, cpu),
        (Protocol::Resp, Some(_)) => ask_by_plan::<Gets>(plan, timetable, cpu),
    }
}

fn ask_by_plan<C: Conversation>(
    plan: &ClientPlan,
    timetable: Timetable,
    cpu: usize,
) -> Result<(), String> {
    go_first(cpu)?;
    let (mut client, opening) = Client::<C>::opened(plan, timetable, || false)?;
    let mut caps = CapsReport::default();
    caps.fact("client", plan.sentence());
    if opening > 0 {
        caps.fact("opening", format!("{opening} requests were answered before the first is due"));
    }
    pipe::reply(&Reply::Ready(Ready { caps, ..Ready::default() }));
    loop {
        match pipe::order() {
            Order::Ask(asking) => {
                pipe::reply(&Reply::Asked(Box::new(client.ask(asking, || false)?)));
            }
            Order::Report => pipe::reply(&Reply::Reopened(client.reopen()?)),
            Order::Segment(_) => {}
            Order::Stop => return Ok(()),
        }
    }
}
