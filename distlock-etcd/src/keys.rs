//! The keys in etcd: `<lock>/<token>`. The name of the lock is escaped, so that it contains no other `/`.

/// The longest name of a lock in bytes. etcd accepts longer keys, but it returns all keys of a lock in one answer.
const LONGEST: usize = 2000;

/// The prefix of all keys of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockPrefix(Vec<u8>);

impl LockPrefix {
    /// Returns the prefix for a lock's name, or `None` if the name is too long.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name.len() > LONGEST {
            return None;
        }
        let mut prefix = escape(name);
        prefix.push(b'/');
        Some(Self(prefix))
    }

    /// Returns the key of a token.
    pub(crate) fn key(&self, token: &str) -> Vec<u8> {
        [&self.0, token.as_bytes()].concat()
    }

    /// Returns the first key of the range.
    pub(crate) fn start(&self) -> &[u8] {
        &self.0
    }

    /// Returns the end of the range, which is not part of it.
    pub(crate) fn end(&self) -> Vec<u8> {
        range_with_prefix(self.0.clone()).1
    }

    /// Returns the token that a key belongs to.
    pub(crate) fn token(&self, key: &[u8]) -> String {
        let token = key.strip_prefix(&*self.0).unwrap_or_default();
        String::from_utf8_lossy(token).into_owned()
    }
}

/// Escapes a name, so that it can stand before the `/`.
fn escape(name: &str) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len() + 1);
    for byte in name.bytes() {
        match byte {
            b'/' => escaped.extend_from_slice(b"%2F"),
            b'%' => escaped.extend_from_slice(b"%25"),
            byte => escaped.push(byte),
        }
    }
    escaped
}

/// Returns the range of the keys of all locks whose names begin like this.
pub(crate) fn range_of_locks(beginning: &str) -> (Vec<u8>, Vec<u8>) {
    range_with_prefix(escape(beginning))
}

/// Returns the range of all keys that begin like this.
pub(crate) fn range_of(beginning: &str) -> (Vec<u8>, Vec<u8>) {
    range_with_prefix(beginning.as_bytes().to_vec())
}

fn range_with_prefix(start: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut end = start.clone();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (start, end)
}

/// Returns the name of the lock that a key belongs to, or `None` if it belongs to no lock.
pub(crate) fn name_of(key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let (escaped, _) = key.rsplit_once('/')?;
    Some(escaped.replace("%2F", "/").replace("%25", "%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_lock_has_a_key_of_another_one() {
        let one = LockPrefix::of("p:lock::{a}").expect("a name");
        for other in ["p:lock::{a}/x", "p:lock::{a}%2Fx", "p:lock::{a}0"] {
            let key = LockPrefix::of(other).expect("a name").key("t.1.5s");
            assert!(!(one.start()..&*one.end()).contains(&&*key), "{other}");
        }
        let key = one.key("t.1.5s");
        assert!((one.start()..&*one.end()).contains(&&*key));
        assert_eq!(one.token(&key), "t.1.5s");
        assert_ne!(LockPrefix::of("a/b"), LockPrefix::of("a%2Fb"));
        assert_eq!(LockPrefix::of(&"a".repeat(2001)), None);
        for name in ["p:lock:{a}", "p:lock:{a/b%2F}", "%25/%"] {
            let key = LockPrefix::of(name).expect("a name").key("t.1.5s");
            assert_eq!(name_of(&key).as_deref(), Some(name));
        }
    }
}
