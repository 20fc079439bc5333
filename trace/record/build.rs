//! Compiles the kernel join's eBPF programs.

fn main() {
    laneway_bpf_build::compile("bpf/join.bpf.c");
}
