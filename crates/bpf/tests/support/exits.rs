//! What those tests share that send: the kernel half of `bpf/test_exits.bpf.c`.

use crate::support::ifindex;
use laneway_core::{KernelHalf, MapValue};

/// The half of `bpf/test_exits.bpf.c`, which sends by `exits`: interfaces and what stamps frames there.
pub(crate) fn scattering(object: &'static [u8], exits: MapValue) -> KernelHalf {
    KernelHalf {
        name: "test_exits",
        object,
        program: "scatter",
        config: Vec::new(),
        entries: vec![("exits", 0u32.to_ne_bytes().to_vec(), exits)],
        map_sizes: Vec::new(),
        records: None,
        drops_map: Some("drops"),
        seen_map: Some("seen"),
    }
}

/// Of `exits`: these interfaces, each with program `stamp`.
pub(crate) fn exits(interfaces: &[&str]) -> MapValue {
    let exit = |name: &&str| MapValue::Exit(ifindex(name), "stamp");
    let numbers = (0u32..).map(|at| at.to_ne_bytes().to_vec());
    MapValue::Map(numbers.zip(interfaces.iter().map(exit)).collect())
}
