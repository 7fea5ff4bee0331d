//! A server, or a proxy before it, that looks into scripts and refuses some of them.

use std::sync::Arc;

/// Which scripts are refused, and in what words. Everything else passes.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// A script is refused if its text contains one of these.
    scripts: Arc<[String]>,
    words: Arc<str>,
}

impl Refusal {
    /// Refuses the scripts whose text contains one of `scripts` with `words`, which begin with the error's code.
    pub fn of<S: Into<String>>(scripts: impl IntoIterator<Item = S>, words: &str) -> Self {
        Self { scripts: scripts.into_iter().map(Into::into).collect(), words: words.into() }
    }

    /// What is sent to the server instead of these bytes of a client. What is left in `partial` is the beginning of a
    /// command that is not complete yet.
    ///
    /// A refused script becomes one that answers with the error. So the answers keep their order.
    pub(crate) fn rewrite(&self, partial: &mut Vec<u8>, bytes: &[u8]) -> Vec<u8> {
        partial.extend_from_slice(bytes);
        let mut sent = Vec::with_capacity(bytes.len());
        while let Some((words, length)) = command(partial) {
            let command: Vec<u8> = partial.drain(..length).collect();
            match self.refuses(&words) {
                true => sent.extend(self.answer().into_bytes()),
                false => sent.extend(command),
            }
        }
        sent
    }

    fn refuses(&self, words: &[Vec<u8>]) -> bool {
        let [name, text, ..] = words else { return false };
        let text = String::from_utf8_lossy(text);
        name.eq_ignore_ascii_case(b"EVAL") && self.scripts.iter().any(|part| text.contains(part))
    }

    fn answer(&self) -> String {
        let script = format!("return redis.error_reply([[{}]])", self.words);
        format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len())
    }
}

/// The words of the first command, and its length; `None` if it is not complete.
fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = number(bytes, 0, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, begin) = number(bytes, at, b'$')?;
        words.push(bytes.get(begin..begin + length)?.to_vec());
        at = begin + length + 2;
    }
    (bytes.len() >= at).then_some((words, at))
}

/// The number in the line that begins at `at`, and where the next line begins.
fn number(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(line[0], mark, "a client sends arrays of texts");
    let digits = std::str::from_utf8(&line[1..end]).expect("digits");
    Some((digits.parse().expect("a number"), at + end + 2))
}
