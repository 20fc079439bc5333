#!/usr/bin/env python3
"""Redis's own tests against a store, beside redis-server: which that one passes does the store pass?

    git clone https://github.com/redis/redis /tmp/redis
    python3 redis-suite.py /tmp/redis target/release/laneway [LANE [WORKERS]]

It needs tclsh, redis-server and redis-cli, and takes some minutes. The tests are those of tag 7.0.15, in a folder of
their own that is removed; each unit has servers of its own on loopback. Left out are tests that ask for DEBUG,
replication, scripts or much time, and those that Redis itself leaves out of servers that it did not start. Two lines
of the suite are changed: FUNCTION FLUSH may be refused, and so may CONFIG SET of `save` and of what a store has not.
With several workers the suite runs as it does for a cluster: no test has keys of several slots.
"""

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TAG = "7.0.15"
UNITS = """type/string type/incr type/list type/set type/hash type/zset keyspace scan expire protocol multi pubsub quit
introspection introspection-2 slowlog info-command pause other latency-monitor lazyfree bitops violations""".split()
DENIED = "-needs:debug -needs:repl -needs:save -scripting -slow -large-memory"
UNIT_SECONDS_MAX = 400
# A test that waits longer for a reply gets none.
TEST_SECONDS_MAX = 40
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def port_of_its_own():
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def change(path, old, new):
    text = path.read_text()
    if old not in text:
        sys.exit(f"redis-suite.py: {path} has no `{old}`: is this {TAG}?")
    path.write_text(text.replace(old, new, 1))


def unpack(checkout, folder):
    archive = subprocess.run(["git", "-C", checkout, "archive", TAG, "tests", "runtest"], capture_output=True)
    if archive.returncode:
        sys.exit(f"redis-suite.py: {archive.stderr.decode().strip()}; a clone with tag {TAG} is needed")
    subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    (folder / "src").mkdir()
    for tool in ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
        if found := shutil.which(tool):
            (folder / "src" / tool).symlink_to(found)
    server = folder / "tests/support/server.tcl"
    change(server, "    r function flush\n", "    catch {r function flush}\n")
    unknown = 'if {[lindex $args 2] eq "save" || [string match "*Unknown option*" $why]} {return OK}'
    change(
        folder / "tests/test_helper.tcl",
        '    [srv $level "client"] {*}$args\n}',
        '    if {[lindex $args 0] eq "config" && [lindex $args 1] eq "set"} {\n'
        f'        if {{[catch {{[srv $level "client"] {{*}}$args}} why]}} {{ {unknown}; error $why }}\n'
        '        return $why\n    }\n    [srv $level "client"] {*}$args\n}',
    )


def run(folder, command, unit, more):
    """Names of the tests that passed, and of the others with the line that says why."""
    port = port_of_its_own()
    words = [word.format(port=port, address=f"127.0.0.1:{port}") for word in command]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        suite = ["timeout", str(UNIT_SECONDS_MAX), "./runtest", "--host", "127.0.0.1", "--port", str(port)]
        suite += ["--durable", "--ignore-encoding", "--timeout", str(TEST_SECONDS_MAX)]
        suite += ["--tags", DENIED, "--single", f"unit/{unit}", *more]
        printed = subprocess.run(suite, cwd=folder, capture_output=True).stdout.decode(errors="replace")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    passed, failed, failing = [], {}, None
    for line in COLOURS.sub("", printed).splitlines():
        if ok := re.match(r"\[ok\]: (.*) \(\d+ ms\)$", line):
            passed.append(ok[1])
        elif err := re.match(r"\[err\]: (.*) in tests/", line):
            failing = err[1]
            # Some are printed once more at the end.
            failed.setdefault(failing, "")
        elif failing and not failed[failing]:
            failed[failing] = line.strip()
    if "[1/1 done]" not in printed:
        failed["(the unit did not end)"] = "what stands behind its last test did not run"
    return passed, failed


def main():
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    checkout, laneway = sys.argv[1:3]
    lane, workers = (sys.argv[3:] + ["socket", "1"][len(sys.argv) - 3 :])[:2]
    store = [laneway, "run", "kv", "--lane", lane, "--workers", workers, "--listen", "{address}"]
    redis = ["redis-server", "--port", "{port}", "--bind", "127.0.0.1", "--save", ""]
    more = [] if workers == "1" else ["--cluster-mode"]
    with tempfile.TemporaryDirectory(prefix="redis-suite-") as folder:
        folder = pathlib.Path(folder)
        unpack(checkout, folder)
        print("| unit | passed by redis-server | of these passed by the store |\n|---|---|---|")
        rest, sums = [], [0, 0]
        for unit in UNITS:
            theirs, _ = run(folder, redis, unit, more)
            ours, failed = run(folder, store, unit, more)
            shared = [name for name in theirs if name in ours]
            sums = [sums[0] + len(theirs), sums[1] + len(shared)]
            print(f"| `{unit}` | {len(theirs)} | {len(shared)} |", flush=True)
            rest += [(unit, name, failed.get(name, "not run")) for name in theirs if name not in ours]
        print(f"| all | {sums[0]} | {sums[1]} |\n")
        for unit, name, why in rest:
            print(f"- `{unit}`: {name}: {why[:160]}")


main()
