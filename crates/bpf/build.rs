//! Compiles the one program that the library embeds, and those that the tests load.

fn main() {
    laneway_bpf_build::compile("bpf/pass.bpf.c");
    for test in ["count", "exits", "ingress", "refused", "trace"] {
        laneway_bpf_build::compile(&format!("bpf/test_{test}.bpf.c"));
    }
}
