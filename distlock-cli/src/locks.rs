//! Locks as they stand in the store: keys, queues and the records of processes.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use distlock::__console::{StoreCommand, StoreReply, unescaped};
use distlock::LockManager;
use serde_json::{Value, json};

use crate::exit;
use crate::store::{Failure, Named, describe};

/// A lock that is held.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) key: String,
    /// Its name in the store.
    #[cfg(feature = "top")]
    pub(crate) stored: String,
    /// Another one means that it was released in between.
    #[cfg(feature = "top")]
    pub(crate) token: String,
    /// At least one.
    pub(crate) holders: Vec<Process>,
    /// Nobody else may hold it beside its holder.
    pub(crate) alone: bool,
    /// What is left of the lease; `None` where it has no end, which no lock of ours is.
    pub(crate) remaining: Option<Duration>,
    /// How many places of its queue are taken.
    pub(crate) waiting: u64,
}

/// A process that holds or waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Process {
    /// What its tokens begin with.
    pub(crate) id: String,
    /// What it says of itself, if it does: `app`, `host`, `pid`, and so on.
    pub(crate) record: BTreeMap<String, String>,
}

/// The locks of a store.
pub(crate) struct Locks<'a> {
    pub(crate) manager: &'a LockManager,
    /// The prefix as it stands in names.
    names: String,
}

/// Where a walk begins, and where it is over.
pub(crate) const START: &str = "0";
/// How many keys a server looks at in one step of a walk.
const STEP: &str = "1000";

impl<'a> Locks<'a> {
    pub(crate) fn of(store: &Named, manager: &'a LockManager) -> Result<Self, Failure> {
        if !store.is_shared() {
            let text = "memory:// locks are seen by their own process alone; name a server";
            return Err(Failure::usage(text));
        }
        Ok(Self { manager, names: store.names() })
    }

    /// Those that are held whose keys fit, at most `limit`, sorted by key; and whether there are more.
    pub(crate) async fn held(
        &self,
        fits: impl Fn(&str) -> bool,
        limit: usize,
    ) -> Result<(Vec<Held>, bool), Failure> {
        let mut found: BTreeMap<String, Held> = BTreeMap::new();
        let mut cursor = START.to_owned();
        loop {
            let names;
            (cursor, names) = self.walk(&cursor).await?;
            let wanted = names.into_iter().filter(|name| {
                self.key_of(name).is_some_and(|key| fits(&key) && !found.contains_key(&key))
            });
            let wanted: Vec<String> = wanted.collect();
            for held in self.look(&wanted).await? {
                found.insert(held.key.clone(), held);
            }
            if cursor == START || found.len() > limit {
                break;
            }
        }
        let more = found.len() > limit;
        let mut held: Vec<Held> = found.into_values().take(limit).collect();
        self.introduce(held.iter_mut().flat_map(|held| &mut held.holders)).await?;
        Ok((held, more))
    }

    /// One step of a walk through the names of locks: where it goes on, and what it found.
    pub(crate) async fn walk(&self, cursor: &str) -> Result<(String, Vec<String>), Failure> {
        let pattern = format!("{}lock:*", escaped(&self.names));
        let scan = command(&["SCAN", cursor, "MATCH", &pattern, "COUNT", STEP]);
        let [next, names] = &list(self.one(scan).await?)?[..] else { return Err(unfit()) };
        let names = list(names.clone())?;
        Ok((text(next).ok_or_else(unfit)?, names.iter().filter_map(text).collect()))
    }

    /// The holder of one, and the processes that wait, in order.
    pub(crate) async fn one_held(
        &self,
        key: &str,
    ) -> Result<Option<(Held, Vec<Process>)>, Failure> {
        let name = self.manager.stored_name(key)?;
        let Some(mut held) = self.look(std::slice::from_ref(&name)).await?.pop() else {
            return Ok(None);
        };
        let queue = command(&["ZRANGE", &self.queue_of(&name), "0", "-1"]);
        let queue = list(self.one(queue).await?)?;
        let mut seen = HashSet::new();
        let waiting = queue.iter().filter_map(text).map(|token| Process::of_token(&token));
        // A process may stand there more than once.
        let mut waiting: Vec<Process> =
            waiting.filter(|process| seen.insert(process.id.clone())).collect();
        self.introduce(waiting.iter_mut().chain(&mut held.holders)).await?;
        Ok(Some((held, waiting)))
    }

    /// Those of these names that are held now.
    pub(crate) async fn look(&self, names: &[String]) -> Result<Vec<Held>, Failure> {
        let questions = names.iter().flat_map(|name| {
            let queue = self.queue_of(name);
            [command(&["GET", name]), command(&["PTTL", name]), command(&["ZCARD", &queue])]
        });
        let answers = self.ask(questions.collect()).await?;
        let shared = self.shared(names, &answers).await?;
        let held = names.iter().zip(answers.chunks(3)).filter_map(|(name, answers)| {
            let [token, rest, waiting] = answers else { return None };
            let number = |reply: &StoreReply| match reply {
                StoreReply::Number(number) => u64::try_from(*number).ok(),
                _ => None,
            };
            let (tokens, alone) = match text(token) {
                Some(token) => (vec![token], true),
                None => (shared.get(name)?.clone(), false),
            };
            Some(Held {
                key: self.key_of(name)?,
                #[cfg(feature = "top")]
                stored: name.clone(),
                holders: tokens.iter().map(|token| Process::of_token(token)).collect(),
                alone,
                #[cfg(feature = "top")]
                token: tokens.join(" "),
                remaining: number(rest).map(Duration::from_millis),
                waiting: number(waiting).unwrap_or(0),
            })
        });
        Ok(held.collect())
    }

    /// The tokens of those locks that were no text: a set of them where several hold a lock.
    async fn shared(
        &self,
        names: &[String],
        answers: &[StoreReply],
    ) -> Result<BTreeMap<String, Vec<String>>, Failure> {
        let is_shared = |answers: &[StoreReply]| matches!(answers[0], StoreReply::Error(_));
        let both = names.iter().zip(answers.chunks(3));
        let shared: Vec<&String> =
            both.filter(|(_, answers)| is_shared(answers)).map(|(name, _)| name).collect();
        let range = |name: &&String| command(&["ZRANGE", name, "0", "-1"]);
        let sets = self.ask(shared.iter().map(range).collect()).await?;
        let tokens = |set: StoreReply| match set {
            StoreReply::List(tokens) => tokens.iter().filter_map(text).collect(),
            _ => Vec::new(),
        };
        let sets = shared.into_iter().cloned().zip(sets.into_iter().map(tokens));
        Ok(sets.filter(|(_, tokens): &(_, Vec<String>)| !tokens.is_empty()).collect())
    }

    /// Adds what processes say of themselves.
    pub(crate) async fn introduce(
        &self,
        processes: impl Iterator<Item = &mut Process>,
    ) -> Result<(), Failure> {
        let processes: Vec<&mut Process> = processes.collect();
        let ids: Vec<String> = processes.iter().map(|process| process.id.clone()).collect();
        let mut known: Vec<String> = ids.clone();
        known.sort();
        known.dedup();
        let record = |id: &String| command(&["GET", &format!("{}process:{id}", self.names)]);
        let answers = self.ask(known.iter().map(record).collect()).await?;
        for (process, id) in processes.into_iter().zip(ids) {
            let at = known.binary_search(&id).unwrap_or_default();
            let words = answers.get(at).and_then(text).unwrap_or_default();
            let pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
            process.record = pairs.map(|(name, is)| (name.to_owned(), unescaped(is))).collect();
        }
        Ok(())
    }

    async fn one(&self, question: StoreCommand) -> Result<StoreReply, Failure> {
        match self.ask(vec![question]).await?.pop() {
            Some(StoreReply::Error(text)) => Err(Failure { text, code: exit::STORE }),
            Some(reply) => Ok(reply),
            None => Err(unfit()),
        }
    }

    async fn ask(&self, questions: Vec<StoreCommand>) -> Result<Vec<StoreReply>, Failure> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let answers = self.manager.ask_store(questions).await;
        answers.map_err(|error| Failure { text: describe(&error), code: exit::of(&error) })
    }

    fn key_of(&self, name: &str) -> Option<String> {
        let tagged = name.strip_prefix(&self.names)?.strip_prefix("lock:")?;
        // A key that brings a hash tag of its own stands behind a second colon, without braces.
        let key = match tagged.strip_prefix(':') {
            Some(key) => key,
            None => tagged.strip_prefix('{')?.strip_suffix('}')?,
        };
        Some(key.to_owned())
    }

    fn queue_of(&self, name: &str) -> String {
        let rest = name.strip_prefix(&self.names).and_then(|name| name.strip_prefix("lock"));
        format!("{}queue{}", self.names, rest.unwrap_or_default())
    }
}

#[cfg(all(test, feature = "top"))]
impl Held {
    /// For tests of what is shown.
    pub(crate) fn example(key: &str, token: &str, waiting: u64) -> Self {
        Self {
            key: key.to_owned(),
            stored: format!("distlock:lock:{{{key}}}"),
            token: token.to_owned(),
            holders: vec![Process::of_token(token)],
            alone: true,
            remaining: Some(Duration::from_secs(20)),
            waiting,
        }
    }
}

impl Process {
    fn of_token(token: &str) -> Self {
        let id = token.split('.').next().unwrap_or_default().to_owned();
        Self { id, record: BTreeMap::new() }
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = json!({ "process": self.id });
        if let Value::Object(object) = &mut json {
            let fields = self.record.iter();
            object.extend(fields.map(|(name, is)| (name.clone(), is.clone().into())));
        }
        json
    }
}

/// `app@host:pid` where that is known, else the beginning of its number.
impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let field = |name| self.record.get(name).map(|text| crate::say::shown(text));
        match (field("app"), field("host"), field("pid")) {
            (Some(app), Some(host), Some(pid)) => write!(f, "{app}@{host}:{pid}"),
            _ => f.write_str(&crate::say::shown(&self.id.chars().take(12).collect::<String>())),
        }
    }
}

impl From<distlock::Process> for Process {
    fn from(process: distlock::Process) -> Self {
        let distlock::Process { id, app, host, pid, version, .. } = process;
        let fields = [("app", app), ("host", host), ("pid", pid.to_string()), ("v", version)];
        Self { id, record: fields.map(|(name, is)| (name.to_owned(), is)).into() }
    }
}

/// The first of them, and how many more there are.
pub(crate) fn several(processes: &[Process]) -> String {
    match processes {
        [] => "nobody".to_owned(),
        [one] => one.to_string(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    }
}

pub(crate) fn command(words: &[&str]) -> StoreCommand {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(crate) fn text(reply: &StoreReply) -> Option<String> {
    match reply {
        StoreReply::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

fn list(reply: StoreReply) -> Result<Vec<StoreReply>, Failure> {
    match reply {
        StoreReply::List(replies) => Ok(replies),
        _ => Err(unfit()),
    }
}

fn unfit() -> Failure {
    let text = "the store gave an answer that does not fit the question; is it a Redis?".to_owned();
    Failure { text, code: exit::STORE }
}

/// A text that a server's patterns take as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "*?[]\\^".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Whether a key fits a pattern: `*` stands for any text, `?` for one character, and a character behind a
/// `\` for itself.
pub(crate) fn fits(pattern: &str, key: &str) -> bool {
    /// Of a pattern.
    #[derive(PartialEq)]
    enum Part {
        Any,
        One,
        Is(char),
    }
    let (mut pattern, mut rest) = (Vec::new(), pattern.chars());
    while let Some(c) = rest.next() {
        pattern.push(match c {
            '*' => Part::Any,
            '?' => Part::One,
            '\\' => Part::Is(rest.next().unwrap_or(c)),
            c => Part::Is(c),
        });
    }
    let key: Vec<char> = key.chars().collect();
    let (mut p, mut k) = (0, 0);
    // Where to go on if what follows the last `*` does not fit.
    let mut again = None;
    while k < key.len() {
        match pattern.get(p) {
            Some(Part::Any) => {
                again = Some((p, k));
                p += 1;
            }
            Some(Part::One) => (p, k) = (p + 1, k + 1),
            Some(Part::Is(c)) if *c == key[k] => (p, k) = (p + 1, k + 1),
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    (p, k) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|part| *part == Part::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, key, is) in [
            ("*", "", true),
            ("order:*", "order:42", true),
            ("order:*", "orders", false),
            ("*:42", "order:42", true),
            ("o*r*2", "order:42", true),
            ("o*r*3", "order:42", false),
            ("order:??", "order:42", true),
            ("order:?", "order:42", false),
            ("order", "order:42", false),
            ("[a]", "[a]", true),
            ("a**b", "ab", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            (r"\\*", r"\n", true),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(fits(pattern, key), is, "{pattern} {key}");
        }
    }
}
