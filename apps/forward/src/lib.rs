//! App `forward`: testpmd's forwarding modes, a bridge, a router, and flow rules in testpmd's grammar,
//! in user space on every frame lane and in the kernel.
//!
//! ```text
//!   "flow create 0 ingress pattern eth / ipv4 / udp dst is 53 / end actions drop / end"
//!        │ parser ─▶ Rule ─▶ compile ─▶ masks and values
//!        ▼                                   │
//!   RuleSet ── commit ──▶ RuleFeed ──▶ Forward        (a frame app)
//!                    └──▶ KernelFeed ─▶ KernelForward (an XDP program and its user side)
//! ```
//!
//! `command` is the arguments and the report of `laneway run forward`. Rules come from a file and the command line
//! (`given`), from standard input (`talk`) and from a socket (`laneway_control`), whose other end is `laneway rules`
//! (`client`). [`Console`] carries all of them out.
//!
//! Rules, edits and modes exist twice: here and in `bpf/forward.h`, which is compiled for eBPF and, as
//! the tests' referee, for the host; all three agree on every frame of every capture at hand.
//!
//! What must always hold: every frame has exactly one [`Fate`], a frame that is dropped has a reason,
//! and every frame sees one whole rule set.
#![forbid(unsafe_code)]

mod account;
mod bank;
mod bridge;
mod client;
mod command;
mod compile;
mod config;
mod config_error;
mod console;
mod decide;
mod edit;
mod fate;
mod fields;
mod given;
mod grammar;
mod guide;
mod kernel;
mod kind;
mod live;
mod offload;
mod parser;
mod route;
mod routes;
mod rules;
mod table;
mod talk;
mod tuple;
mod user;

pub use bank::{KERNEL_ENTRIES_MAX, KERNEL_LINE_MAX, KERNEL_MASKS_MAX};
pub use bridge::{AGE_NS_DEFAULT, STATIONS_DEFAULT, STATIONS_MAX};
pub use command::ForwardArguments;
pub use compile::{Bounds, ENTRIES_PER_RULE_MAX, RULES_MAX, RuleRefused};
pub use config::{Config, Mode};
pub use config_error::ConfigError;
pub use console::{COMMITS_MAX, Console};
pub use fate::{Fate, Stats};
pub use fields::HEADERS_BYTES_MAX;
pub use grammar::{Action, Attributes, Command, Item, ItemKind, Rule, Test};
pub use kernel::{KernelForward, OBJECT};
pub use kind::{ForwardKind, ForwardReport, ForwardRun, check_on};
pub use live::{LiveStats, StatsSlot};
pub use parser::{Line, PRIORITY_MAX, parse_command, parse_line, parse_rule};
pub use route::{Neighbour, Route, parse_mac};
pub use routes::{NEIGHBOURS_MAX, ROUTES_MAX};
pub use rules::{
    CHANGES_MAX, CommandError, Commit, ENTRIES_MAX, ExecutionPlace, GROUPS_MAX, Headers, Hits,
    KernelFeed, OFFERED_RULES_MAX, Placement, RuleFeed, RuleSet,
};
pub use table::{MASKS_MAX, Shape};
pub use user::Forward;

/// Queues that `queue` and `rss` actions may name.
pub const QUEUES_MAX: usize = 16;
