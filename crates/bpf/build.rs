//! Compiles the programs that the tests load; the library itself embeds none.

fn main() {
    for source in ["bpf/test_count.bpf.c", "bpf/test_refused.bpf.c", "bpf/test_trace.bpf.c"] {
        laneway_bpf_build::compile(source);
    }
}
