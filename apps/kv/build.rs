//! Compiles the kernel half.

fn main() {
    laneway_bpf_build::compile("bpf/get.bpf.c");
}
