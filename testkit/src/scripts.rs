//! The scripts of one lock, run one at a time as the product sends them, and all that can be seen of it.

use std::collections::HashMap;

use distlock_redis::scripts::{Step, text};
use redis::{Connection, FromRedisValue, RedisResult, Value};

use crate::{RedisServer, wait_until};

/// So long that it does not end in a test.
const LONG_MS: u64 = 100_000;
const QUEUE_EXPIRY: u64 = 50_000;
const LOCK: &str = "p:lock:{k}";
const QUEUE: &str = "p:queue:{k}";
const FENCE: &str = "p:fence";

/// One lock on a server of its own, and processes that listen to its messages.
pub struct Bench {
    /// Where the scripts run.
    pub server: RedisServer,
    eye: Connection,
    /// By their names.
    listeners: HashMap<String, Connection>,
    issued: u64,
    /// What there was before and after the last script, if that is looked at.
    seen: Option<(Sight, Sight)>,
    watches: bool,
}

/// All that there is of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The server's time, in ms.
    pub now: u64,
    /// The token that has it alone.
    pub alone: Option<String>,
    /// The tokens that hold it together, and until when.
    pub together: Vec<(String, u64)>,
    /// For how many ms the lock is stored; -1 for ever, -2 if it is not.
    pub lives: i64,
    /// The waiters, with their tickets.
    pub queue: Vec<(String, u64)>,
    /// As `lives`, of the queue.
    pub queue_lives: i64,
}

/// How a lock is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// In ms.
    pub ttl: u64,
    /// The place in the queue; 0 for a new one.
    pub ticket: u64,
    /// By the server's time in µs; 0 for no end.
    pub not_after: u64,
    /// Without a place in the queue.
    pub is_try: bool,
}

impl Default for Args {
    fn default() -> Self {
        Self { ttl: LONG_MS, ticket: 0, not_after: 0, is_try: false }
    }
}

/// The answer to a token that asks for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It has it.
    Granted {
        /// A value of the fence counter.
        fence: u64,
        /// Others wait.
        contended: bool,
    },
    /// It has not.
    Taken {
        /// Its place.
        ticket: u64,
        /// Until there is room, in ms; -1 if that is never.
        remaining: i64,
        /// How many stand in front.
        rank: u64,
        /// How many stand behind.
        behind: u64,
        /// It did not stand there before.
        added: bool,
    },
    /// It came too late.
    Late,
}

impl Said {
    /// The value of the fence counter of a grant.
    #[track_caller]
    pub fn fence(self) -> u64 {
        match self {
            Self::Granted { fence, .. } => fence,
            other => panic!("not granted: {other:?}"),
        }
    }

    /// Whether it has the lock.
    pub fn is_granted(self) -> bool {
        matches!(self, Self::Granted { .. })
    }

    /// The place in the queue, and how many stand before and behind it.
    #[track_caller]
    pub fn place(self) -> (u64, u64, u64) {
        match self {
            Self::Taken { ticket, rank, behind, .. } => (ticket, rank, behind),
            other => panic!("not queued: {other:?}"),
        }
    }

    /// In how many ms there is room.
    #[track_caller]
    pub fn remaining(self) -> i64 {
        match self {
            Self::Taken { remaining, .. } => remaining,
            other => panic!("not taken: {other:?}"),
        }
    }
}

impl Bench {
    /// A free lock, and a process of each name that listens.
    pub fn new(processes: &[&str]) -> Self {
        let server = RedisServer::start();
        let eye = server.eye();
        let mut bench =
            Self { server, eye, listeners: HashMap::new(), issued: 0, seen: None, watches: false };
        processes.iter().for_each(|process| bench.listen(process));
        bench
    }

    /// A token that was never used, with this limit: nothing for one that is alone. Its process is
    /// notified, and has ten seconds to confirm.
    pub fn token(&mut self, process: &str, limit: &str) -> String {
        self.token_with(process, limit, 10_000, 's')
    }

    /// The same with another claim, in ms, and mode.
    pub fn token_with(&mut self, process: &str, limit: &str, claim: u64, mode: char) -> String {
        self.issued += 1;
        format!("{process}.{}.{claim}{mode}{limit}", self.issued)
    }

    /// The process listens to its channel.
    pub fn listen(&mut self, process: &str) {
        let mut listener = self.server.eye();
        listener
            .send_packed_command(
                &redis::cmd("SUBSCRIBE").arg(channel(process)).get_packed_command(),
            )
            .expect("subscribe");
        listener.recv_response().expect("subscribed");
        self.listeners.insert(process.to_owned(), listener);
    }

    /// Ends the subscription to the channel of the process.
    pub fn deafen(&mut self, process: &str) {
        drop(self.listeners.remove(process));
        let eye = &mut self.eye;
        wait_until("it has no subscriber", || {
            let (_, listeners): (String, u64) = redis::cmd("PUBSUB")
                .arg("NUMSUB")
                .arg(channel(process))
                .query(eye)
                .expect("an answer");
            listeners == 0
        });
    }

    /// The messages that the process got since the last time, as `kind token`.
    #[track_caller]
    pub fn heard(&mut self, process: &str) -> Vec<String> {
        // Messages come in order: those before this one are all there are.
        const END: &str = "end";
        let sent: u64 =
            self.raw(redis::cmd("PUBLISH").arg(channel(process)).arg(END)).expect("sent");
        assert_eq!(sent, 1, "{process} does not listen");
        let listener = self.listeners.get_mut(process).expect("a listener");
        let mut heard = Vec::new();
        loop {
            let (_, _, message): (String, String, String) =
                FromRedisValue::from_redis_value(listener.recv_response().expect("a message"))
                    .expect("a message");
            if message == END {
                return heard;
            }
            let lock = [" ", LOCK].concat();
            heard.push(message.strip_suffix(&lock).expect("of this lock").to_owned());
        }
    }

    /// Forgets all messages so far.
    #[track_caller]
    pub fn hush(&mut self) {
        let processes: Vec<_> = self.listeners.keys().cloned().collect();
        processes.iter().for_each(|process| drop(self.heard(process)));
    }

    /// Asks for the lock with the script of the token's kind.
    #[track_caller]
    pub fn ask(&mut self, token: &str, args: Args) -> Said {
        self.try_ask(token, args).expect("an answer")
    }

    /// The same, also if the server refuses.
    ///
    /// # Errors
    ///
    /// What the server answers.
    pub fn try_ask(&mut self, token: &str, args: Args) -> RedisResult<Said> {
        let Args { ttl, ticket, not_after, is_try } = args;
        let mut words = vec![token.to_owned()];
        words.extend([ttl, ticket, QUEUE_EXPIRY, not_after].map(|number| number.to_string()));
        if is_try {
            words.push("1".to_owned());
        }
        let answer = self.run(Step::Acquire, is_alone(token), &words)?;
        Ok(said(token, &answer))
    }

    /// Asks for a place or for the lock.
    #[track_caller]
    pub fn acquire(&mut self, token: &str) -> Said {
        self.ask(token, Args::default())
    }

    /// The same for one after the other.
    #[track_caller]
    pub fn acquire_all<'a>(&mut self, tokens: impl IntoIterator<Item = &'a String>) {
        tokens.into_iter().for_each(|token| _ = self.acquire(token));
    }

    /// Asks for the lock without a place.
    #[track_caller]
    pub fn attempt(&mut self, token: &str) -> Said {
        self.ask(token, Args { is_try: true, ..Args::default() })
    }

    /// What the fast path of a token does that is alone; true if the lock is its.
    #[track_caller]
    pub fn set(&mut self, token: &str, ttl: u64) -> bool {
        let set = self.raw::<Option<String>>(
            redis::cmd("SET").arg(LOCK).arg(token).arg("NX").arg("PX").arg(ttl),
        );
        set.expect("an answer").is_some()
    }

    /// Frees the lock or leaves the queue: what became of it, and which tokens were let in.
    #[track_caller]
    pub fn release(&mut self, token: &str) -> (i64, Vec<String>) {
        self.try_release(token, None).expect("an answer")
    }

    /// The same, keeping the lock for so many ms.
    #[track_caller]
    pub fn keep(&mut self, token: &str, ms: u64) -> (i64, Vec<String>) {
        self.try_release(token, Some(ms)).expect("an answer")
    }

    /// The same, also if the server refuses.
    ///
    /// # Errors
    ///
    /// What the server answers.
    pub fn try_release(
        &mut self,
        token: &str,
        keep: Option<u64>,
    ) -> RedisResult<(i64, Vec<String>)> {
        let mut words = vec![token.to_owned()];
        words.extend(keep.map(|ms| ms.to_string()));
        Ok(match self.run(Step::Release, is_alone(token), &words)? {
            Value::Array(answer) => {
                let what = FromRedisValue::from_redis_value(answer[0].clone())?;
                let let_in = answer[1..].iter().cloned().map(String::from_redis_value);
                (what, let_in.collect::<Result<_, _>>()?)
            }
            answer => (FromRedisValue::from_redis_value(answer)?, Vec::new()),
        })
    }

    /// Frees the lock and looks at nothing else, as while its slot of a cluster moves. Whether the token held it.
    #[track_caller]
    pub fn free(&mut self, token: &str) -> bool {
        self.try_free(token).expect("an answer")
    }

    /// The same, also if the server refuses.
    ///
    /// # Errors
    ///
    /// What the server says.
    pub fn try_free(&mut self, token: &str) -> RedisResult<bool> {
        let words = [token.to_owned()];
        Ok(self.run(Step::Free, is_alone(token), &words)? == Value::Int(1))
    }

    /// Extends a lease: 0 if there is none, 2 if others wait, else 1.
    #[track_caller]
    pub fn renew(&mut self, token: &str, ttl: u64) -> i64 {
        self.try_renew(token, ttl).expect("an answer")
    }

    /// The same, also if the server refuses.
    ///
    /// # Errors
    ///
    /// What the server says.
    #[track_caller]
    pub fn try_renew(&mut self, token: &str, ttl: u64) -> RedisResult<i64> {
        let (state, number): (i64, u64) = self.renewal(token, ttl, 0)?;
        assert_eq!(number, 7, "another one's answer");
        Ok(state)
    }

    /// The same, with a value of the fence counter.
    #[track_caller]
    pub fn renew_and_draw(&mut self, token: &str, ttl: u64) -> u64 {
        self.renew_and_draw_several(token, ttl, 1)
    }

    /// The same, with so many values, of which this is the last.
    #[track_caller]
    pub fn renew_and_draw_several(&mut self, token: &str, ttl: u64, count: u64) -> u64 {
        let (_, _, fence): (i64, u64, u64) = self.renewal(token, ttl, count).expect("an answer");
        fence
    }

    #[track_caller]
    fn renewal<T: FromRedisValue>(&mut self, token: &str, ttl: u64, draw: u64) -> RedisResult<T> {
        let words = [token.to_owned(), ttl.to_string(), draw.to_string(), "7".to_owned()];
        let answer = self.run(Step::Renew, is_alone(token), &words)?;
        Ok(T::from_redis_value(answer).expect("what a renewal says"))
    }

    /// Gives the lock from one token to another; `None` if the old one does not have it.
    #[track_caller]
    pub fn downgrade(&mut self, old: &str, new: &str) -> Option<Said> {
        let words = [new, &LONG_MS.to_string(), old, "0"].map(str::to_owned);
        let answer = self.run(Step::Downgrade, false, &words).expect("an answer");
        let Value::Array(parts) = &answer else { panic!("no answer: {answer:?}") };
        (parts.len() > 2).then(|| said(new, &answer))
    }

    /// Raises the counter to the server's time, which it answers with in µs, or above `seen`.
    #[track_caller]
    pub fn raise(&mut self, seen: u64) -> (u64, u64) {
        let args = [(seen + 1).to_string(), (1_u64 << 53).to_string(), (1_u64 << 52).to_string()];
        let mut eval = redis::cmd("EVAL");
        eval.arg(text(Step::Raise, true)).arg(1).arg(FENCE).arg(&args);
        self.raw(&eval).expect("raised")
    }

    fn run(&mut self, step: Step, alone: bool, args: &[String]) -> RedisResult<Value> {
        let mut eval = redis::cmd("EVAL");
        eval.arg(text(step, alone)).arg(3).arg(LOCK).arg(QUEUE).arg(FENCE).arg(args);
        if !self.watches {
            return self.raw(&eval);
        }
        let mut look = redis::cmd("EVAL");
        look.arg(LOOK).arg(2).arg(LOCK).arg(QUEUE);
        let mut all = redis::pipe();
        all.atomic().add_command(look.clone()).add_command(eval).add_command(look);
        let (before, answer, after): (Looked, Value, Looked) = all.query(&mut self.eye)?;
        self.seen = Some((before.into(), after.into()));
        Ok(answer)
    }

    /// From here on every script runs between two looks, with nothing in between.
    pub fn watch(&mut self) {
        self.watches = true;
    }

    /// What there was before and after the last script.
    #[track_caller]
    pub fn seen(&self) -> &(Sight, Sight) {
        self.seen.as_ref().expect("a script has run")
    }

    /// Whether the process listens to its channel.
    pub fn listens(&self, process: &str) -> bool {
        self.listeners.contains_key(process)
    }

    /// Any command.
    ///
    /// # Errors
    ///
    /// What the server answers.
    pub fn raw<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> RedisResult<T> {
        command.query(&mut self.eye)
    }

    /// Any command about the lock: its name comes second.
    #[track_caller]
    pub fn lock<T: FromRedisValue>(&mut self, command: &str, args: &[&str]) -> T {
        self.raw(redis::cmd(command).arg(LOCK).arg(args)).expect("an answer")
    }

    /// Any command about the queue.
    #[track_caller]
    pub fn queue<T: FromRedisValue>(&mut self, command: &str, args: &[&str]) -> T {
        self.raw(redis::cmd(command).arg(QUEUE).arg(args)).expect("an answer")
    }

    /// The token that has the lock alone.
    #[track_caller]
    pub fn alone(&mut self) -> Option<String> {
        match self.lock::<String>("TYPE", &[]).as_str() {
            "string" => self.lock("GET", &[]),
            _ => None,
        }
    }

    /// The tokens that hold the lock together, in the order of their ends.
    #[track_caller]
    pub fn together(&mut self) -> Vec<String> {
        match self.lock::<String>("TYPE", &[]).as_str() {
            "zset" => self.lock("ZRANGE", &["0", "-1"]),
            _ => Vec::new(),
        }
    }

    /// The tokens in the queue.
    #[track_caller]
    pub fn waiting(&mut self) -> Vec<String> {
        self.queue("ZRANGE", &["0", "-1"])
    }

    /// How long the lock lives, in ms; -1 for ever, -2 if there is none.
    #[track_caller]
    pub fn lives(&mut self) -> i64 {
        self.lock("PTTL", &[])
    }

    /// The lock ends with the last lease of those that hold it together, to the millisecond.
    #[track_caller]
    pub fn ends_with_the_last(&mut self) {
        const LOOK: &str = "local t = redis.call('TIME') \
            return {math.floor((t[1] * 1000000 + t[2]) / 1000) + redis.call('PTTL', KEYS[1]), \
            tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])}";
        const LOOKS: usize = 20;
        let mut early = 0;
        // The time is asked before the time to live, on a busy machine some milliseconds.
        for _ in 0..LOOKS {
            let (end, last): (i64, i64) =
                self.raw(redis::cmd("EVAL").arg(LOOK).arg(1).arg(LOCK)).expect("a set");
            early = last - end;
            if early.abs() <= 1 {
                return;
            }
        }
        panic!("the lock ends {early} ms before its last lease");
    }

    /// Waits until the lease of a token has ended, whether it still stands in the set or not.
    #[track_caller]
    pub fn until_ended(&mut self, token: &str) {
        const LEFT: &str = "local t, till = redis.call('TIME'), redis.call('ZSCORE', KEYS[1], ARGV[1]) \
            return till and till - math.floor((t[1] * 1000000 + t[2]) / 1000) or -1";
        wait_until("the lease has ended", || {
            let left: i64 = self
                .raw(redis::cmd("EVAL").arg(LEFT).arg(1).arg(LOCK).arg(token))
                .expect("a number");
            left < 0
        });
    }

    /// Has the lock expire now, with all that hold it.
    #[track_caller]
    pub fn expire(&mut self) {
        assert_eq!(self.lock::<u64>("PEXPIRE", &["1"]), 1, "there is no lock");
        self.until_expired();
    }

    /// Waits until the lock has expired.
    #[track_caller]
    pub fn until_expired(&mut self) {
        wait_until("the lock has expired", || self.lives() == -2);
    }

    /// Forgets the lock and its queue; the counter stays.
    #[track_caller]
    pub fn clear(&mut self) {
        self.lock::<u64>("DEL", &[QUEUE]);
        self.hush();
    }

    /// From here on the server refuses what needs memory, or again not.
    #[track_caller]
    pub fn is_full(&mut self, full: bool) {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(if full { "1" } else { "0" });
        self.raw::<()>(&set).expect("set");
    }
}

/// All that there is of a lock, at one moment.
const LOOK: &str = "local t = redis.call('TIME') \
    local kind = redis.call('TYPE', KEYS[1]).ok \
    return {math.floor((t[1] * 1000000 + t[2]) / 1000), \
    kind == 'string' and redis.call('GET', KEYS[1]) or '', \
    kind == 'zset' and redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') or {}, \
    redis.call('PTTL', KEYS[1]), \
    redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('PTTL', KEYS[2])}";

type Looked = (u64, String, Vec<(String, f64)>, i64, Vec<(String, f64)>, i64);

impl From<Looked> for Sight {
    fn from((now, alone, together, lives, queue, queue_lives): Looked) -> Self {
        let whole = |(token, score): (String, f64)| (token, score as u64);
        Self {
            now,
            alone: (!alone.is_empty()).then_some(alone),
            together: together.into_iter().map(whole).collect(),
            lives,
            queue: queue.into_iter().map(whole).collect(),
            queue_lives,
        }
    }
}

/// Whether the token has the lock alone when it has it.
fn is_alone(token: &str) -> bool {
    token.ends_with(['s', 'n'])
}

fn channel(process: &str) -> String {
    format!("p:wake:{process}")
}

#[track_caller]
fn said(token: &str, answer: &Value) -> Said {
    let Value::Array(parts) = answer else { panic!("no answer: {answer:?}") };
    let numbers: Vec<i64> =
        parts.iter().filter_map(|part| i64::from_redis_value(part.clone()).ok()).collect();
    assert_eq!(parts[1], Value::BulkString(token.as_bytes().to_vec()), "another one's answer");
    let count = |number: i64| u64::try_from(number).expect("a count");
    match numbers[..] {
        [1, fence, behind] => Said::Granted { fence: count(fence), contended: behind != 0 },
        [3, _] => Said::Late,
        [0, ticket, remaining, rank, behind, added] => {
            let (ticket, rank, behind) = (count(ticket), count(rank), count(behind));
            Said::Taken { ticket, remaining, rank, behind, added: added != 0 }
        }
        _ => panic!("an unknown answer: {answer:?}"),
    }
}
