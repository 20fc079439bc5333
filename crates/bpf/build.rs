//! Compiles the programs that the tests load; the library itself embeds none.

fn main() {
    for test in ["count", "exits", "ingress", "refused", "trace"] {
        laneway_bpf_build::compile(&format!("bpf/test_{test}.bpf.c"));
    }
}
