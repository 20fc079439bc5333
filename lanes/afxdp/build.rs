//! Compiles the redirect program.

fn main() {
    laneway_bpf_build::compile("bpf/afxdp.bpf.c");
}
