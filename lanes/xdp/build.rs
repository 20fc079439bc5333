//! Compiles the lane's own programs, and the halves that the tests share with `bpf`.

fn main() {
    laneway_bpf_build::compile("bpf/behind.bpf.c");
    laneway_bpf_build::compile("bpf/spread.bpf.c");
    laneway_bpf_build::compile("bpf/spread_drops.bpf.c");
    laneway_bpf_build::compile("../../crates/bpf/bpf/test_count.bpf.c");
    laneway_bpf_build::compile("../../crates/bpf/bpf/test_exits.bpf.c");
}
