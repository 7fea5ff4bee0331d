//! What is stored where: `<lock>/<token>`, in which the name of a lock has no `/` of its own.

/// The longest name of a lock: etcd takes more, and answers with all of a lock's keys at once.
const LONGEST: usize = 2000;

/// What all keys of a lock begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prefix(Vec<u8>);

impl Prefix {
    /// Of a lock's name; `None` if it is too long.
    pub(crate) fn of(name: &str) -> Option<Self> {
        if name.len() > LONGEST {
            return None;
        }
        let mut prefix = escape(name);
        prefix.push(b'/');
        Some(Self(prefix))
    }

    /// The key of a token.
    pub(crate) fn key(&self, token: &str) -> Vec<u8> {
        [&self.0, token.as_bytes()].concat()
    }

    pub(crate) fn start(&self) -> &[u8] {
        &self.0
    }

    /// Behind the last of its keys.
    pub(crate) fn end(&self) -> Vec<u8> {
        let mut end = self.0.clone();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }

    /// Whose key it is.
    pub(crate) fn token(&self, key: &[u8]) -> String {
        let token = key.strip_prefix(&*self.0).unwrap_or_default();
        String::from_utf8_lossy(token).into_owned()
    }
}

/// Text as it stands in front of the `/`.
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

/// All keys of locks whose names begin with this: the first, and behind the last.
pub(crate) fn all_under(beginning: &str) -> (Vec<u8>, Vec<u8>) {
    range_from(escape(beginning))
}

/// All keys that begin with this: the first, and behind the last.
pub(crate) fn range_of(beginning: &str) -> (Vec<u8>, Vec<u8>) {
    range_from(beginning.as_bytes().to_vec())
}

fn range_from(start: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut end = start.clone();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (start, end)
}

/// The name of the lock that a key belongs to; `None` if it is not one of a lock.
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
        let one = Prefix::of("p:lock::{a}").expect("a name");
        for other in ["p:lock::{a}/x", "p:lock::{a}%2Fx", "p:lock::{a}0"] {
            let key = Prefix::of(other).expect("a name").key("t.1.5s");
            assert!(!(one.start()..&*one.end()).contains(&&*key), "{other}");
        }
        let key = one.key("t.1.5s");
        assert!((one.start()..&*one.end()).contains(&&*key));
        assert_eq!(one.token(&key), "t.1.5s");
        assert_ne!(Prefix::of("a/b"), Prefix::of("a%2Fb"));
        assert_eq!(Prefix::of(&"a".repeat(2001)), None);
        for name in ["p:lock:{a}", "p:lock:{a/b%2F}", "%25/%"] {
            let key = Prefix::of(name).expect("a name").key("t.1.5s");
            assert_eq!(name_of(&key).as_deref(), Some(name));
        }
    }
}
