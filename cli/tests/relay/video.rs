//! A video as MPEG transport stream over multicast, from ffmpeg to ffmpeg through the relay: every frame arrives as it
//! was.

use super::{PATIENCE, Running, World, is_member, text};
use laneway_testkit::skip;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Frames of the video, and of those that are asked for: the last ones end with a frame that does not come.
const FRAMES: u32 = 40;
const ASKED: u32 = 35;
/// A receiver that hears nothing for so long ends, microseconds.
const SILENCE_US: u32 = 20_000_000;

/// Size and MD5 of each frame, from the lines of ffmpeg's `framemd5`: stream, times, size, sum. A receiver's times
/// begin when it does.
fn frames(lines: &str) -> Vec<String> {
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let fields = |line: &str| -> String { line.split(',').skip(4).map(str::trim).collect() };
    lines.map(fields).take(ASKED as usize).collect()
}

fn ffmpeg(mut command: Command, arguments: &[&str]) -> Command {
    command.args(["-nostdin", "-hide_banner", "-loglevel", "error", "-y"]).args(arguments);
    command.stdin(Stdio::null());
    command
}

#[test]
fn ffmpeg_receives_the_frames_that_ffmpeg_sends_through_it() {
    if Command::new("ffmpeg").arg("-version").output().is_err() {
        return skip("ffmpeg is not installed");
    }
    let Some(world) = World::new() else { return };
    let (sent, received) = (world.folder.file("sent.ts"), world.folder.file("received"));
    let source =
        format!("testsrc=size=320x240:rate=25,noise=alls=20:allf=t,trim=end_frame={FRAMES}");
    let make = ["-f", "lavfi", "-i", &source, "-c:v", "mpeg2video", "-b:v", "2M", &sent];
    let output = ffmpeg(Command::new("ffmpeg"), &make).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let sums = ["-i", &sent, "-c", "copy", "-f", "framemd5", "-"];
    let output = ffmpeg(Command::new("ffmpeg"), &sums).output().unwrap();
    let wanted = frames(&text(&output.stdout));
    assert_eq!(wanted.len(), ASKED as usize, "{}", text(&output.stderr));
    for lane in ["socket:batch=64,gso,gro", "uring:gso,gro"] {
        let group = "239.1.1.1:5000@in0";
        let running = world.start(lane, &["--input", group, "--output", "239.2.2.2:5000@out0"]);
        let url = format!("udp://239.2.2.2:5000?localaddr=198.51.100.4&timeout={SILENCE_US}");
        let count = ASKED.to_string();
        // No more of the stream comes than this, so it must do to know what it is.
        let known = ["-analyzeduration", "500000", "-fpsprobesize", "5"];
        let take = ["-i", &url, "-c", "copy", "-frames:v", &count, "-f", "framemd5", &received];
        let receive = [&known[..], &take].concat();
        let mut sink = ffmpeg(world.sink.command("ffmpeg"), &receive);
        let sink = sink.stderr(Stdio::piped()).spawn().unwrap();
        let mut sink = Running { child: Some(sink) };
        let begun = Instant::now();
        while !is_member(&world.sink, "dst0", "239.2.2.2") && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        let url = "udp://239.1.1.1:5000?pkt_size=1316&ttl=4&localaddr=192.0.2.7";
        let send = ["-re", "-i", &sent, "-c", "copy", "-f", "mpegts", url];
        let output = ffmpeg(world.source.command("ffmpeg"), &send).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = sink.child.take().expect("it was started").wait_with_output().unwrap();
        assert!(output.status.success(), "{lane}: {}", text(&output.stderr));
        let arrived = frames(&fs::read_to_string(&received).unwrap());
        assert_eq!(arrived, wanted, "{lane}");
        let account = running.account(lane);
        assert!(account["copies"]["sent"].as_u64().is_some_and(|n| n > 40), "{account:#}");
    }
}
