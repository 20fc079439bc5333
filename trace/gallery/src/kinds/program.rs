//! The instrumented program under LTTng: healthy, and with each of its faults.

use std::env;
use std::process::Command;

use super::{DELAY_SHARE, Made, Scene};
use crate::ours::Neighbour;
use crate::theirs::{Plan, Recorded, record, run_untraced};
use crate::truth::{Cause, Size, Truth, Word};
use crate::world::{NotMade, Running};

/// The function of the program that keeps house.
const HOUSEKEEPING: &str = "expire_flows";
/// Names an instrumented testpmd; docs/instrumented-dpdk.md tells how to build one.
const TESTPMD: &str = "LANEWAY_TESTPMD";
/// A share of the worker's time above which the tracer's cost is a cause beside the planted one.
const TRACER_SHARE: f64 = 0.01;

/// An even load that leaves most of the time idle, and looks at the device that are not too many to record.
fn base(scene: &mut Scene<'_>) -> Plan {
    let ms = scene.time_ms();
    let rate = scene.draw.number("rate", 1_000, 5_000);
    let work_ns = scene.draw.number("work_ns", 2_000, 12_000);
    let poll_ns = scene.draw.number("poll_ns", 15_000, 50_000);
    Plan::new(ms, &[("rate", rate), ("work_ns", work_ns), ("poll_ns", poll_ns), ("ring", 4_096)])
}

/// Adds what the program and the scheduler know of a recording.
fn instruments(scene: &Scene<'_>, truth: &mut Truth, recorded: &Recorded) {
    let figure = |name: &str| recorded.figure(name);
    truth.know(format!(
        "the program: {} packets, {} lost, {} polls, {} of them empty; {} times and {} ns in the fault; {} page faults",
        figure("packets"),
        figure("lost"),
        figure("polls"),
        figure("empty_polls"),
        figure("fault_times"),
        figure("fault_ns"),
        figure("minor_faults"),
    ));
    let (delayed, span) = (figure("delay_ns"), figure("span_ns"));
    truth.know(format!("schedstat: {delayed} of {span} ns delayed"));
    if delayed as f64 > DELAY_SHARE * span as f64 {
        truth.add(Word::Preempted.into());
    }
    if figure("lost") > 0 {
        truth.add(Word::Loss.into());
        truth.add(Word::Overload.into());
    }
    match scene.world.tracer_ns_per_call() {
        Ok(cost_ns) => {
            let share = figure("calls") as f64 * cost_ns / span as f64;
            truth.know(format!("tracer: {cost_ns:.0} ns in each of {} calls", figure("calls")));
            if share > TRACER_SHARE {
                truth.add(Word::Tracer.into());
            }
        }
        Err(why) => truth.know(format!("tracer: its cost is not known: {why:?}")),
    }
}

fn planted(
    scene: &Scene<'_>,
    recorded: Recorded,
    first: Vec<Cause>,
    also: Vec<Cause>,
    size: Option<(Size, &[Word])>,
) -> Made {
    let mut truth = scene.truth(first, also);
    if let Some((size, words)) = size {
        truth.measure(size, words);
    }
    instruments(scene, &mut truth, &recorded);
    Made { trace: recorded.trace, truth }
}

fn well(scene: &Scene<'_>, plan: &Plan) -> Result<Made, NotMade> {
    let recorded = record(scene.world, plan, &scene.folder)?;
    if recorded.figure("lost") > 0 {
        return Err(NotMade::Missed(format!("it lost {} packets", recorded.figure("lost"))));
    }
    Ok(planted(scene, recorded, Vec::new(), Vec::new(), None))
}

pub(super) fn steady(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = base(scene);
    well(scene, &plan)
}

pub(super) fn steady_kernel(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = Plan { kernel: true, ..base(scene) };
    well(scene, &plan)
}

pub(super) fn idle(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let poll_ns = scene.draw.number("poll_ns", 15_000, 50_000);
    well(scene, &Plan::new(ms, &[("poll_ns", poll_ns)]))
}

pub(super) fn bursts(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = base(scene).with("train", scene.draw.number("train", 8, 200));
    well(scene, &plan)
}

pub(super) fn waits(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = Plan { kernel: true, ..base(scene) }.with("wait", 1);
    well(scene, &plan)
}

pub(super) fn cold_start(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = base(scene);
    let setup_ms = scene.draw.number("setup_ms", 100, 500);
    let plan =
        plan.with("setup_ms", setup_ms).with("begin_ms", scene.draw.number("begin_ms", 50, 300));
    let mut made = well(scene, &plan)?;
    made.truth.add(Word::ColdStart.into());
    Ok(made)
}

pub(super) fn full(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let work_ns = scene.draw.number("work_ns", 20_000, 60_000);
    well(scene, &Plan::new(ms, &[("endless", 1), ("work_ns", work_ns), ("poll_ns", 1_000)]))
}

/// Time in the fault, by the program's clock: on the CPU at least, with all that interrupted it at most.
fn fault(recorded: &Recorded) -> Size {
    let high_ns = recorded.figure("fault_ns");
    Size::Time { low_ns: recorded.figure("fault_cpu_ns").min(high_ns), high_ns }
}

/// The same of a fault that is not on the CPU, or whose time there was not read.
fn whole_fault(recorded: &Recorded) -> Size {
    let ns = recorded.figure("fault_ns");
    Size::Time { low_ns: ns, high_ns: ns }
}

/// A load with housekeeping whose share is drawn, spent under the argument `name`.
fn with_period(scene: &mut Scene<'_>, name: &'static str, most: f64) -> Plan {
    let period_us = scene.draw.number("period_us", 5_000, 80_000);
    let share = scene.draw.share("share", 0.05, most);
    let us = scene.draw.keep(name, (period_us as f64 * share) as u64);
    base(scene).with("period_us", period_us).with(name, us)
}

/// The program keeps house on a grid of this.
fn period_of(plan: &Plan) -> Option<u64> {
    let period_us = plan.arguments.iter().find(|(name, _)| *name == "period_us");
    period_us.map(|(_, us)| us * 1_000)
}

fn busy(scene: &mut Scene<'_>, kernel: bool) -> Result<Made, NotMade> {
    let plan = Plan { kernel, ..with_period(scene, "busy_us", 0.4) };
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let first = vec![Cause::naming(Word::Housekeeping, &[HOUSEKEEPING])];
    let size = fault(&recorded);
    let made = planted(scene, recorded, first, Vec::new(), Some((size, &[Word::Housekeeping])));
    Ok(made.every(period_of(&plan)))
}

pub(super) fn housekeeping(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    busy(scene, false)
}

pub(super) fn housekeeping_kernel(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    busy(scene, true)
}

/// Without the kernel's part the trace does not show that it sleeps: the function alone is named then.
fn sleeping(scene: &mut Scene<'_>, kernel: bool) -> Result<Made, NotMade> {
    let plan = Plan { kernel, ..with_period(scene, "sleep_us", 0.4) };
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let mut first = vec![Cause::naming(Word::Housekeeping, &[HOUSEKEEPING])];
    if kernel {
        first.push(Word::Sleep.into());
        first.push(Cause::naming(Word::SystemCall, &["nanosleep"]));
    }
    let size = whole_fault(&recorded);
    let words = [Word::Housekeeping, Word::Sleep, Word::SystemCall];
    let made = planted(scene, recorded, first, Vec::new(), Some((size, &words)));
    Ok(made.every(period_of(&plan)))
}

pub(super) fn asleep(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    sleeping(scene, false)
}

pub(super) fn asleep_kernel(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    sleeping(scene, true)
}

pub(super) fn lock_convoy(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let plan = Plan { kernel: true, ..with_period(scene, "hold_us", 0.4) };
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let also = vec![Cause::naming(Word::SystemCall, &["futex"])];
    let size = whole_fault(&recorded);
    Ok(planted(scene, recorded, vec![Word::Lock.into()], also, Some((size, &[Word::Lock]))))
}

/// Of a page fault's time, what may lie outside the kernel's two events: the way into the kernel and back.
const CROSSING_SHARE: f64 = 0.2;

/// The same program runs without a recorder first: with one, a fault takes longer, and its part that the kernel tells
/// of is shorter than either by the way into the kernel and back.
pub(super) fn page_faults(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let pages = scene.draw.number("pages", 8, 40);
    let plan = Plan { kernel: true, ..base(scene) }.with("pages", pages);
    let untraced = run_untraced(scene.world, &plan, &scene.folder)?;
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let also = vec![
        Cause::naming(Word::SystemCall, &["madvise"]),
        Cause::naming(Word::SlowFunction, &["use_fresh_memory"]),
    ];
    let per_time =
        |r: &Recorded| r.figure("fault_ns") as f64 / r.figure("fault_times").max(1) as f64;
    let without_ns = per_time(&untraced) * recorded.figure("fault_times") as f64;
    let low_ns = (without_ns * (1.0 - CROSSING_SHARE)) as u64;
    let size = Size::Time { low_ns, high_ns: recorded.figure("fault_ns").max(low_ns) };
    let words = [Word::PageFaults];
    let has_faults = recorded.has_faults;
    let mut made =
        planted(scene, recorded, vec![Word::PageFaults.into()], also, Some((size, &words)));
    if !has_faults {
        made.truth.cannot_be_answered = Some("page faults");
    }
    made.truth.know(format!("without a recorder as many faults take {without_ns:.0} ns"));
    Ok(made)
}

pub(super) fn slow_function(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let rate = scene.draw.number("rate", 2_000, 8_000);
    let share = scene.draw.share("share", 0.3, 0.6);
    let slow_ns = scene.draw.keep("slow_ns", (1e9 / rate as f64 * share) as u64);
    let poll_ns = scene.draw.number("poll_ns", 15_000, 50_000);
    let plan = Plan::new(
        ms,
        &[
            ("rate", rate),
            ("work_ns", slow_ns / 8),
            ("slow_ns", slow_ns),
            ("poll_ns", poll_ns),
            ("ring", 4_096),
        ],
    );
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let first = vec![Cause::naming(Word::SlowFunction, &["inspect_payload"])];
    let size = whole_fault(&recorded);
    Ok(planted(scene, recorded, first, Vec::new(), Some((size, &[Word::SlowFunction]))))
}

pub(super) fn allocation(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let rate = scene.draw.number("rate", 2_000, 8_000);
    let share = scene.draw.share("share", 0.2, 0.5);
    let ns = scene.draw.keep("allocate_ns", (1e9 / rate as f64 * share) as u64);
    let poll_ns = scene.draw.number("poll_ns", 15_000, 50_000);
    let plan = Plan::new(
        ms,
        &[
            ("rate", rate),
            ("work_ns", ns / 8),
            ("allocate_ns", ns),
            ("poll_ns", poll_ns),
            ("ring", 4_096),
        ],
    );
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let names = ["rte_malloc", "rte_free", "copy_and_drop"];
    let also = vec![Cause::naming(Word::SlowFunction, &names)];
    let size = whole_fault(&recorded);
    let words = [Word::Allocation];
    Ok(planted(scene, recorded, vec![Word::Allocation.into()], also, Some((size, &words))))
}

/// The same program runs without a recorder first: what a packet takes longer with one is the tracer's.
pub(super) fn tracer_load(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let tiny = scene.draw.number("tiny", 20, 80);
    let work_ns = scene.draw.number("work_ns", 300, 1_200);
    let ms = scene.draw.number("ms", 300, 500);
    let arguments = [("endless", 1), ("work_ns", work_ns), ("tiny", tiny), ("poll_ns", 200)];
    let plan = Plan::new(ms, &arguments);
    let untraced = run_untraced(scene.world, &plan, &scene.folder)?;
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let per_packet = |r: &Recorded| r.figure("busy_ns") as f64 / r.figure("packets").max(1) as f64;
    let (with, without) = (per_packet(&recorded), per_packet(&untraced));
    let ns = ((with - without) * recorded.figure("packets") as f64).max(0.0) as u64;
    // What others took of the CPU meanwhile made packets longer, too.
    let low_ns = ns.saturating_sub(recorded.figure("delay_ns"));
    let size = Size::Time { low_ns, high_ns: ns };
    let words = [Word::Tracer];
    let mut made =
        planted(scene, recorded, vec![Word::Tracer.into()], Vec::new(), Some((size, &words)));
    made.truth.know(format!("a packet takes {with:.0} ns with a recorder, {without:.0} without"));
    Ok(made)
}

/// A load beyond what the work per packet allows.
fn overloaded(scene: &mut Scene<'_>) -> Result<Recorded, NotMade> {
    let ms = scene.time_ms();
    let work_ns = scene.draw.number("work_ns", 20_000, 60_000);
    let times = scene.draw.share("times", 1.4, 3.0);
    let rate = scene.draw.keep("rate", (1e9 / work_ns as f64 * times) as u64);
    let ring = scene.draw.pick("ring", &[128, 256, 1_024]);
    let arguments = [("rate", rate), ("work_ns", work_ns), ("ring", ring), ("poll_ns", 2_000)];
    record(scene.world, &Plan::new(ms, &arguments), &scene.folder)
}

pub(super) fn overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let recorded = overloaded(scene)?;
    with_counted_loss(scene, recorded)
}

/// The user read the device's counter and tells the analysis.
fn with_counted_loss(scene: &Scene<'_>, recorded: Recorded) -> Result<Made, NotMade> {
    let lost = recorded.figure("lost");
    let size = Size::Packets(lost);
    let also = vec![Word::Overload.into()];
    let words = [Word::Loss];
    let mut made = planted(scene, recorded, vec![Word::Loss.into()], also, Some((size, &words)));
    made.truth.drops = Some(lost);
    Ok(made)
}

/// Polls that are always full are those of a device that always has packets, too: see [`full`].
pub(super) fn overload_uncounted(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let recorded = overloaded(scene)?;
    let lost = recorded.figure("lost");
    if lost == 0 {
        return Err(NotMade::Missed("it lost nothing".to_owned()));
    }
    let mut made = planted(scene, recorded, vec![Word::Overload.into()], Vec::new(), None);
    made.truth.cannot_be_answered = Some("losses");
    Ok(made)
}

pub(super) fn burst_overload(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let ms = scene.time_ms();
    let ring = scene.draw.pick("ring", &[64, 128, 256]);
    let times = scene.draw.share("times", 1.5, 4.0);
    let train = scene.draw.keep("train", (ring as f64 * times) as u64);
    let work_ns = scene.draw.number("work_ns", 2_000, 8_000);
    // Trains keep the worker busy for a drawn share of the time between them.
    let share = scene.draw.share("share", 0.05, 0.2);
    let rate = scene.draw.keep("rate", (1e9 / work_ns as f64 * share) as u64);
    let arguments = [
        ("rate", rate),
        ("train", train),
        ("work_ns", work_ns),
        ("ring", ring),
        ("poll_ns", 15_000),
    ];
    let recorded = record(scene.world, &Plan::new(ms, &arguments), &scene.folder)?;
    with_counted_loss(scene, recorded)
}

pub(super) fn neighbour(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let period_us = scene.draw.number("neighbour_period_us", 4_000, 60_000);
    let busy = scene.draw.share("busy", 0.15, 0.6);
    let busy_us = scene.draw.keep("neighbour_us", (period_us as f64 * busy) as u64);
    let mut plan = Plan { kernel: true, ..base(scene) }.with("cpu", 1);
    plan.neighbour = Some(Neighbour { cpu: 0, busy_us, period_us });
    let recorded = record(scene.world, &plan, &scene.folder)?;
    let first = vec![Cause::naming(Word::Preempted, &["neighbour"])];
    let ns = recorded.figure("delay_ns");
    let size = Size::Time { low_ns: ns, high_ns: ns };
    Ok(planted(scene, recorded, first, Vec::new(), Some((size, &[Word::Preempted]))))
}

/// Devices that always have packets: testpmd forwards as fast as it can, and loses nothing.
pub(super) fn testpmd(scene: &mut Scene<'_>) -> Result<Made, NotMade> {
    let Some(program) = env::var_os(TESTPMD) else {
        return Err(NotMade::Skipped(format!(
            "no instrumented testpmd; docs/instrumented-dpdk.md builds one, {TESTPMD}=PROGRAM names it"
        )));
    };
    let seconds = (scene.time_ms() / 1_000).max(1) + 1;
    let burst = scene.draw.pick("burst", &[16, 32, 64]);
    let trace = scene.folder.join("trace");
    let mut command = Command::new(scene.world.laneway());
    command.args(["trace", "record", "--lttng", "--out"]).arg(&trace).arg("--");
    command.args(["timeout", "--preserve-status", "-s", "INT"]).arg(seconds.to_string());
    command.arg(program).args(["--no-pci", "--no-huge", "-m", "256", "-l", "0,1"]);
    command.args(["--vdev", "net_null0", "--vdev", "net_null1", "--", "--auto-start"]);
    // The pool that testpmd makes unasked is beyond the memory above.
    command.args(["--forward-mode=io", "--total-num-mbufs=8192"]).arg(format!("--burst={burst}"));
    let output = Running::start("the recorder", &mut command)?.end()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let dropped: Vec<&str> = text.lines().filter(|line| line.contains("-dropped:")).collect();
    let mut truth = scene.truth(Vec::new(), vec![Word::Tracer.into(), Word::ColdStart.into()]);
    truth.know(format!("testpmd's statistics: {dropped:?}"));
    Ok(Made { trace, truth })
}
