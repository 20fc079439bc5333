//! The page, opened and used in a real browser.
//!
//! Needs Chromium (Debian: `chromium`), and says so where there is none. The browser is driven over its DevTools
//! protocol through two pipes, so that no port is opened; it runs without a window, on a profile and a page in a folder
//! of its own, which goes with it. Nothing here looks at pictures: what is asserted is what the page says in words.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a test that cannot run says so")]

use laneway_trace::{Options, analyze};
use laneway_trace_export::page;
use laneway_trace_read::Trace;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Names of the browser; the first that is found is taken.
const BROWSERS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// A browser that says nothing for so long has died or hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// The bit of the shift key in an event.
const SHIFT: u8 = 8;
const HOSTILE_NAME: &str = "</script><img src=x onerror=\"document.title='owned'\">";
const RANGE: &str = "document.getElementById('chart-range').textContent";
const READING: &str = "document.getElementById('chart-reading').textContent";
const FOUND: &str = "document.getElementById('chart-found').textContent";

/// One at a time: each takes a second of all cores to start.
static TURN: Mutex<()> = Mutex::new(());

/// A browser with the page of a small trace.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// What it reported unasked since the page was opened.
    events: Vec<Value>,
    session: Option<String>,
    asked: u64,
    folder: PathBuf,
    address: String,
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts it with the page open; `None`, with a message, where there is no browser.
    fn with_page() -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let Some(program) = BROWSERS.into_iter().find(|name| is_installed(name)) else {
            println!("skipped: no browser is installed; apt-get install chromium");
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("laneway-page-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
        let address = write_page(&folder);
        // It reads commands from descriptor 3 and writes to 4; a shell lays them there without unsafe code.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let mut child = Command::new("sh")
            .args(["-c", script, program])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--remote-debugging-pipe", "--window-size=1200,900"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg("about:blank")
            // Its reports of crashes and its caches would lie in the home of the user who runs the test.
            .env("HOME", &folder)
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let to = child.stdin.take().expect("it is piped");
        let mut messages = BufReader::new(child.stdout.take().expect("it is piped"));
        let (to_test, from) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while messages.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                let message = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes));
                if to_test.send(message.expect("messages are JSON")).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        let mut browser = Self {
            child,
            to,
            from,
            events: Vec::new(),
            session: None,
            asked: 0,
            folder,
            address,
            _turn: turn,
        };
        let target = browser.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), &json!({}));
        }
        browser.open("");
        Some(browser)
    }

    fn next(&mut self) -> Value {
        self.from.recv_timeout(SILENCE_MAX).expect("the browser answers")
    }

    /// Sends a command and waits for its result.
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser reads");
        loop {
            let mut answer = self.next();
            if answer["id"] == json!(self.asked) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    /// Loads the page anew, with this fragment.
    fn open(&mut self, fragment: &str) {
        // From the page itself a new fragment would only scroll.
        for address in ["about:blank".to_owned(), format!("{}{fragment}", self.address)] {
            self.events.clear();
            self.ask("Page.navigate", &json!({ "url": address }));
            while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
                let event = self.next();
                self.events.push(event);
            }
        }
    }

    /// The value of an expression in the page, awaited if it is a promise.
    fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.ask("Runtime.evaluate", &parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }

    /// Presses a key where the focus is.
    fn press(&mut self, key: &str) {
        self.press_with(key, 0);
    }

    fn press_with(&mut self, key: &str, modifiers: u8) {
        let mut event = json!({ "type": "keyDown", "key": key, "modifiers": modifiers });
        if key.chars().count() == 1 {
            event["text"] = json!(key);
        }
        self.ask("Input.dispatchKeyEvent", &event);
        self.ask("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
    }

    fn write(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({ "text": text }));
    }

    fn scroll_to(&mut self, id: &str) {
        self.value(&format!("document.getElementById('{id}').scrollIntoView()"));
    }

    /// What the page complained about since it was opened.
    fn complaints(&self) -> Vec<&Value> {
        let kinds = ["Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"];
        self.events.iter().filter(|e| kinds.iter().any(|kind| e["method"] == *kind)).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Killed at once it leaves its children behind; asked to close it ends all of them, and then the pipe.
        let close = json!({ "id": self.asked + 1, "method": "Browser.close" });
        let is_sent = self.to.write_all(format!("{close}\0").as_bytes()).is_ok();
        while is_sent && self.from.recv_timeout(SILENCE_MAX).is_ok() {}
        // It may have gone by itself already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// Writes the page of a small trace and returns its address: a loop of a hundred turns, of which one is slow, and a
/// second thread.
fn write_page(folder: &Path) -> String {
    let call = |name: &str, at_us: u32, length_us: u32, thread: u32| json!({ "name": name, "ph": "X", "ts": at_us, "dur": length_us, "pid": 1, "tid": thread });
    let thread = |tid: u32, name: &str| {
        let name = json!({ "name": name });
        json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": name })
    };
    let mut events = vec![thread(1, "worker"), thread(2, "helper")];
    for turn in 0..100 {
        let at_us = turn * 1_000;
        let (poll, length_us) = if turn == 60 { ("slow_poll", 800) } else { ("poll", 100) };
        events.push(call("turn", at_us, 900, 1));
        events.push(call(poll, at_us + 10, length_us, 1));
        events.push(call(HOSTILE_NAME, at_us + 820, 50, 1));
        events.push(call("help", at_us + 5, 20, 2));
    }
    let file = folder.join("trace.json");
    let text = json!({ "traceEvents": events }).to_string();
    std::fs::write(&file, text).expect("the folder can be written");
    let mut trace = Trace::open(&file).expect("the format is Chrome's");
    let report = analyze(&mut trace, Options::default()).expect("the trace is sound");
    let html = folder.join("page.html");
    std::fs::write(&html, page(&report.analysis)).expect("the folder can be written");
    format!("file://{}", html.display())
}

#[test]
fn the_page_loads_without_a_complaint_and_asks_for_nothing() {
    let Some(mut browser) = Browser::with_page() else { return };
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
    let requests: Vec<Value> = browser
        .events
        .iter()
        .filter(|event| event["method"] == "Network.requestWillBeSent")
        .map(|event| event["params"]["request"]["url"].clone())
        .collect();
    assert_eq!(requests, [json!(browser.address)]);
    assert!(browser.text("document.title").starts_with("Trace: "));
    assert_eq!(browser.value("document.querySelectorAll('img').length"), 0, "a name is markup");
}

#[test]
fn letters_zoom_without_a_click_and_the_address_keeps_the_view() {
    let Some(mut browser) = Browser::with_page() else { return };
    browser.scroll_to("time");
    let whole = browser.text(RANGE);
    browser.press("w");
    let half = browser.text(RANGE);
    assert_ne!(half, whole);
    browser.press("d");
    let later = browser.text(RANGE);
    assert_ne!(later, half);
    let kept = browser.text(
        "new Promise((done) => { const look = () => location.hash.startsWith('#view-') ? done(location.hash) : \
         setTimeout(look, 20); look(); })",
    );
    browser.open(&kept);
    assert_eq!(browser.text(RANGE), later, "{kept}");
    browser.press("0");
    assert_eq!(browser.text(RANGE), whole);
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn the_worst_call_is_one_key_away() {
    let Some(mut browser) = Browser::with_page() else { return };
    browser.scroll_to("time");
    let whole = browser.text(RANGE);
    browser.press("m");
    let first = browser.text(READING);
    assert!(first.starts_with("1 of the ") && first.contains("slow_poll"), "{first}");
    assert_ne!(browser.text(RANGE), whole);
    browser.press("m");
    assert!(browser.text(READING).starts_with("2 of the "));
    browser.press_with("M", SHIFT);
    assert_eq!(browser.text(READING), first);
}

#[test]
fn a_search_counts_and_walks_and_says_when_there_is_nothing() {
    let Some(mut browser) = Browser::with_page() else { return };
    browser.scroll_to("time");
    browser.press("/");
    assert_eq!(browser.text("document.activeElement.id"), "chart-search");
    browser.write("POLL");
    let found = browser.text(FOUND);
    assert!(found.contains(" places; Enter"), "{found}");
    for (modifiers, expected) in [(0, "1 of "), (0, "2 of "), (SHIFT, "1 of ")] {
        browser.press_with("Enter", modifiers);
        let found = browser.text(FOUND);
        assert!(found.starts_with(expected), "{found}");
    }
    browser.press("Escape");
    assert_eq!(browser.text("document.getElementById('chart-search').value"), "");
    browser.write("no such thing");
    assert_eq!(browser.text(FOUND), "no function of that name");
}

#[test]
fn the_flame_graph_is_walked_and_zoomed_by_keys() {
    let Some(mut browser) = Browser::with_page() else { return };
    let reading = "document.getElementById('flame-reading').textContent";
    browser.value("document.getElementById('flame').focus()");
    browser.press("ArrowDown");
    let outer = browser.text(reading);
    assert!(outer.starts_with("turn: total "), "{outer}");
    assert!(outer.contains("100 calls here") && outer.contains("p50"), "{outer}");
    browser.press("ArrowDown");
    let inner = browser.text(reading);
    assert!(inner.starts_with("turn \u{203a} poll: "), "{inner}");
    browser.press("Enter");
    browser.press("ArrowRight");
    let beside = browser.text(reading);
    assert!(beside.starts_with("turn \u{203a} </script>"), "{beside}");
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

#[test]
fn a_third_click_gives_a_table_its_order_back() {
    let Some(mut browser) = Browser::with_page() else { return };
    let names = "[...document.querySelectorAll('#functions-table tbody th')].map((cell) => cell.textContent).join('|')";
    let click = "document.querySelector('#functions-table thead button').click()";
    let written = browser.text(names);
    browser.value(click);
    let rising = browser.text(names);
    browser.value(click);
    let falling = browser.text(names);
    assert!(rising.starts_with("</script>"), "{rising}");
    assert!(falling.starts_with("turn"), "{falling}");
    browser.value(click);
    assert_eq!(browser.text(names), written);
}
