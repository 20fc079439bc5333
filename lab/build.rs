//! Compiles the lab's eBPF programs.

fn main() {
    laneway_bpf_build::compile("bpf/meter.bpf.c");
    laneway_bpf_build::compile("bpf/meter_packets.bpf.c");
    laneway_bpf_build::compile("bpf/generate.bpf.c");
    laneway_bpf_build::compile("bpf/returns.bpf.c");
    laneway_bpf_build::compile("bpf/replies.bpf.c");
    laneway_bpf_build::compile("bpf/arrivals.bpf.c");
    laneway_bpf_build::compile("bpf/copies.bpf.c");
    laneway_bpf_build::compile("bpf/trains.bpf.c");
    laneway_bpf_build::compile("bpf/refused.bpf.c");
    laneway_bpf_build::compile("bpf/test_cpus.bpf.c");
}
