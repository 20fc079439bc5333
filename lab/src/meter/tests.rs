//! Readings made up, word by word.

use super::layout::example::Cpu;
use super::layout::{Part, Who};
use super::*;

const ARM: Who = Who { owner: Owner::Arm(3), part: Part::Task };
const ITS_SOFTIRQ: Who = Who { owner: Owner::Arm(3), part: Part::NetRx };
const IDLE: Who = Who { owner: Owner::Idle, part: Part::Task };
/// Codes of `enum lw_context`.
const NET_RX: u32 = 1;
const NET_TX: u32 = 2;
const HARDIRQ: u32 = 4;

fn reading(at_ns: u64, cpus: &[Cpu]) -> Reading {
    let mut reading = Reading { at_ns, ..Reading::default() };
    cpus.iter().for_each(|cpu| reading.add_cpu(&cpu.0));
    reading
}

#[test]
fn the_open_interval_counts_and_the_parts_close() {
    let start = reading(1_000, &[Cpu::running(900, IDLE)]);
    let cpu = Cpu::running(1_700, ARM).booked(Owner::Idle, Part::Task, 800);
    let usage = reading(2_000, &[cpu]).since(&start);
    assert_eq!((usage.own_ns(3), usage.foreign_ns(), usage.closure()), (300, 0, 1.0));
    assert_eq!(usage.contexts_ns(3)["arm"], 300);
    assert_eq!((usage.own_ns(0), usage.contexts_ns(0)["other arms"]), (0, 300));
}

#[test]
fn receive_softirq_is_the_owners_of_what_was_polled_and_not_the_interrupted_tasks() {
    let start = reading(1_000, &[Cpu::running(1_000, IDLE)]);
    let foreign = Who { owner: Owner::Foreign, part: Part::Task };
    let cpu = Cpu::running(1_900, foreign).in_context(NET_RX).polled(ITS_SOFTIRQ, 50);
    let usage = reading(2_000, &[cpu]).since(&start);
    assert_eq!((usage.own_ns(3), usage.foreign_ns()), (150, 0));
    assert_eq!(usage.contexts_ns(3)["softirq net_rx"], 150);
}

#[test]
fn what_has_no_known_cause_stands_beside_who_was_interrupted() {
    let start = reading(1_000, &[Cpu::running(1_000, ARM), Cpu::running(1_000, IDLE)]);
    let cpus = [
        Cpu::running(1_600, ARM).in_context(HARDIRQ).booked(Owner::Arm(3), Part::Task, 600),
        Cpu::running(1_000, IDLE).in_context(NET_TX),
    ];
    let usage = reading(2_000, &cpus).since(&start);
    assert_eq!((usage.own_ns(3), usage.unattributed_ns(3)), (600, 400));
    assert_eq!((usage.beside_ns(3), usage.beside_ns(2)), (400, 0));
    assert_eq!((usage.unattributed_host_ns(), usage.closure()), (1_000, 1.0));
}

#[test]
fn the_generators_side_is_never_the_arms() {
    let booked = Cpu::running(2_000, IDLE)
        .booked(Owner::Generator(3), Part::Task, 500)
        .booked(Owner::Generator(3), Part::NetRx, 70)
        .booked(Owner::Generator(2), Part::Napi, 9);
    let usage = reading(2_000, &[booked]).since(&Reading::default());
    assert_eq!((usage.own_ns(3), usage.generator_side_ns(3)), (0, 570));
    assert_eq!((usage.generator_task_ns(3), usage.generator_side_ns(2)), (500, 9));
}

#[test]
fn an_offline_cpu_is_not_counted() {
    let offline = Cpu::running(0, IDLE).booked(Owner::Foreign, Part::Task, 5);
    let reading = reading(100, &[offline]);
    assert_eq!((reading.cpus, reading.since(&Reading::default()).foreign_ns()), (0, 0));
}

#[test]
fn a_guess_that_was_put_right_leaves_no_time_behind() {
    let guess = Cpu::running(1_000, ARM).in_context(NET_RX).polled(ITS_SOFTIRQ, 40);
    let start = reading(1_000, &[guess]);
    let other = Cpu::running(1_000, ARM).booked(Owner::Foreign, Part::NetRx, 40);
    let usage = reading(1_000, &[other]).since(&start);
    assert_eq!((usage.own_ns(3), usage.foreign_ns()), (0, 40));
}

#[test]
fn a_cpu_that_was_caught_booking_is_read_again() {
    let mut cpu = Cpu::running(5, ARM);
    assert!(layout::is_whole(&cpu.0));
    *cpu.0.last_mut().unwrap() += 1;
    assert!(!layout::is_whole(&cpu.0));
}

#[test]
fn the_worst_eight_foreigners_are_named() {
    let mut start = Reading::default();
    start.add_name(b"quiet\0\0\0", &7_u64.to_ne_bytes());
    let mut end = Reading::default();
    end.add_name(b"quiet\0\0\0", &7_u64.to_ne_bytes());
    for n in 1..=9_u64 {
        end.add_name(format!("p{n}\0").as_bytes(), &(n * 10).to_ne_bytes());
    }
    let names = end.since(&start).foreigners();
    assert_eq!(
        (names.len(), &names[0], &names[7]),
        (8, &("p9".to_owned(), 90), &("p2".to_owned(), 20))
    );
}

#[test]
fn the_meters_own_work_is_reckoned_from_the_arms_events() {
    let start = reading(1_000, &[Cpu::running(1_000, IDLE).counted(Owner::Arm(3), 5)]);
    let mut end = reading(2_000, &[Cpu::running(1_000, ARM).counted(Owner::Arm(3), 7)]);
    assert_eq!(end.since(&start).metering_ns(3), None, "no event was weighed");
    end.event_ns = Some(100.0);
    let usage = end.since(&start);
    assert_eq!((usage.metering_ns(3), usage.metering_ns(2)), (Some(200), Some(0)));
    assert!(usage.method().contains("about 100 ns each"), "{}", usage.method());
}
