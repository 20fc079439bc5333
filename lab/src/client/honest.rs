//! A store that answers rightly, for tests: it takes SET and GET as arrays of bulk strings, cut anywhere.

use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Honest {
    pub(super) values: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Honest {
    /// Takes the whole commands that `asked` begins with, and answers each.
    pub(super) fn answer(&mut self, asked: &mut Vec<u8>) -> Vec<Vec<u8>> {
        let (mut answers, mut taken) = (Vec::new(), 0);
        while let Some((words, bytes)) = command(&asked[taken..]) {
            taken += bytes;
            answers.push(self.answer_one(&words));
        }
        asked.drain(..taken);
        answers
    }

    fn answer_one(&mut self, words: &[&[u8]]) -> Vec<u8> {
        match words {
            [b"SET", key, value] => {
                self.values.insert(key.to_vec(), value.to_vec());
                b"+OK\r\n".to_vec()
            }
            [b"GET", key] => self.values.get(*key).map_or(b"$-1\r\n".to_vec(), |value| bulk(value)),
            _ => panic!("a client of a store asks SET and GET alone: {words:?}"),
        }
    }
}

/// The first command and its length, if it is whole.
fn command(asked: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    let (count, mut at) = number(asked, 0, b'*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, from) = number(asked, at, b'$')?;
        let word = asked.get(from..from + length)?;
        assert_eq!(asked.get(from + length..from + length + 2)?, b"\r\n");
        words.push(word);
        at = from + length + 2;
    }
    Some((words, at))
}

/// The number behind `mark`, and where the next line begins.
fn number(asked: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = asked.get(at..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(line[0], mark, "{:?}", String::from_utf8_lossy(&line[..end]));
    let number = std::str::from_utf8(&line[1..end]).ok()?.parse().ok()?;
    Some((number, at + end + 2))
}

/// A value as a reply has it.
pub(super) fn bulk(value: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}
