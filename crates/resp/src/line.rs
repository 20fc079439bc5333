//! Lines and lengths: the two things that both readers wait for.

/// Finds the end of a line without looking at a byte twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LineEnd {
    /// Bytes behind the line's start that were searched.
    searched: usize,
}

impl LineEnd {
    /// The line that starts at `from`, without its end, and where the next begins. The byte behind a carriage return
    /// is taken for the line feed, as Redis takes it. None: it has not ended yet.
    pub(crate) fn carriage<'a>(
        &mut self,
        bytes: &'a [u8],
        from: usize,
    ) -> Option<(&'a [u8], usize)> {
        let found = self.find(bytes, from, b'\r')?;
        if found + 1 >= bytes.len() {
            // The search goes on at the carriage return.
            self.searched = found - from;
            return None;
        }
        self.searched = 0;
        Some((&bytes[from..found], found + 2))
    }

    /// The same for a line that a line feed ends, a carriage return before it left out.
    pub(crate) fn feed<'a>(&mut self, bytes: &'a [u8], from: usize) -> Option<(&'a [u8], usize)> {
        let found = self.find(bytes, from, b'\n')?;
        self.searched = 0;
        let line = &bytes[from..found];
        Some((line.strip_suffix(b"\r").unwrap_or(line), found + 1))
    }

    fn find(&mut self, bytes: &[u8], from: usize, end: u8) -> Option<usize> {
        let start = (from + self.searched).min(bytes.len());
        let found = bytes[start..].iter().position(|&byte| byte == end);
        if found.is_none() {
            self.searched = bytes.len() - from;
        }
        found.map(|at| start + at)
    }
}

/// The most that an idle reader keeps.
const KEPT_IDLE_BYTES_MAX: usize = 4096;

/// Empties `kept`, and gives back what an idle reader has no use for.
pub(crate) fn forget(kept: &mut Vec<u8>) {
    if kept.capacity() > KEPT_IDLE_BYTES_MAX {
        *kept = Vec::new();
    }
    kept.clear();
}
