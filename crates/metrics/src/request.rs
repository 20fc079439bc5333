//! As much of HTTP as a reader of figures speaks: the head of a request, and what is answered to it.

/// Bytes of the head of a request.
pub const HEAD_BYTES_MAX: usize = 8192;

/// What is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The page; only its head, if so.
    Page {
        /// HEAD was asked, not GET.
        head_only: bool,
    },
    /// What stands there instead of a page: status and sentence.
    Nothing(&'static str, &'static str),
}

/// No head of a request, or none that is spoken here.
pub(crate) const BAD: Response =
    Response::Nothing("400 Bad Request", "this is no HTTP/1 request; ask GET /metrics");
/// The head has no end.
pub(crate) const TOO_LONG: Response =
    Response::Nothing("431 Request Header Fields Too Large", "8192 bytes of headers are the most");
/// The client takes its time.
pub(crate) const TOO_SLOW: Response =
    Response::Nothing("408 Request Timeout", "the request did not end within 5 s");
/// Too many ask at a time.
pub(crate) const CROWDED: Response =
    Response::Nothing("503 Service Unavailable", "8 clients are the most; try again later");

/// True when `bytes` hold a whole head.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|end| end == b"\r\n\r\n") || bytes.windows(2).any(|end| end == b"\n\n")
}

/// Reads the first line of a head. Any bytes.
pub(crate) fn read(head: &[u8]) -> Response {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return BAD };
    let words: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
    let [method, target, version] = words[..] else { return BAD };
    if !version.starts_with("HTTP/1.") {
        return BAD;
    }
    if !matches!(method, "GET" | "HEAD") {
        return Response::Nothing("405 Method Not Allowed", "ask GET /metrics");
    }
    match target.split('?').next() {
        Some("/metrics") => Response::Page { head_only: method == "HEAD" },
        _ => Response::Nothing("404 Not Found", "the page is at /metrics"),
    }
}

/// A whole answer. `page` is asked only where it is wanted.
pub(crate) fn answer(asked: Response, page: impl FnOnce() -> String) -> String {
    let (status, kind, body, head_only) = match asked {
        Response::Page { head_only } => {
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", page(), head_only)
        }
        Response::Nothing(status, sentence) => {
            (status, "text/plain; charset=utf-8", format!("{sentence}\n"), false)
        }
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n{}",
        body.len(),
        if head_only { "" } else { &body }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_page_is_at_one_place_and_the_rest_is_refused_in_a_sentence() {
        let page = Response::Page { head_only: false };
        for line in ["GET /metrics HTTP/1.1\r\n", "GET /metrics?x=1 HTTP/1.0\n"] {
            assert_eq!(read(line.as_bytes()), page, "{line}");
        }
        assert_eq!(read(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Response::Page { head_only: true });
        for (line, status) in [
            ("POST /metrics HTTP/1.1", "405"),
            ("GET / HTTP/1.1", "404"),
            ("GET /metrics", "400"),
            ("GET /metrics HTTP/2", "400"),
            ("GET  /metrics HTTP/1.1", "400"),
            ("\u{0}\u{1}", "400"),
        ] {
            let Response::Nothing(answer, _) = read(line.as_bytes()) else { panic!("{line}") };
            assert!(answer.starts_with(status), "{line}: {answer}");
        }
        let refused = answer(read(b"PUT / HTTP/1.1"), || panic!("no page was asked for"));
        assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
        let head = answer(Response::Page { head_only: true }, || "four".to_owned());
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_none(bytes: Vec<u8>) {
            let _ = is_whole(&bytes);
            let text = answer(read(&bytes), || "x\n".to_owned());
            prop_assert!(text.starts_with("HTTP/1.1 "));
        }
    }
}
