//! Random processes that send scripts for one lock, each between two looks at all there is of it: whatever is
//! sent, in whatever order, and whichever process dies.

use std::thread;
use std::time::{Duration, Instant};

use distlock_testkit::{Args, Bench, Said, Sight};

use crate::effort::{Dice, Effort};
use crate::report::Report;

const PROCESSES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// What the tokens of a round are.
const MIXES: [[&str; 4]; 4] =
    [["", "r", "r", "3"], ["3", "3", "2", "2"], ["", "r", "r", "r"], ["", "", "r", "5"]];
/// In ms: short, so that leases run out all the time.
const TTLS: [u64; 3] = [60, 120, 1000];
const CLAIM: u64 = 25;
/// Scripts of a round, at the end of which everything is given back.
const ROUND: u64 = 500;
const MOST_TOKENS: usize = 25;
/// After which nothing may be left.
const END: Duration = Duration::from_secs(30);

/// Sends scripts.
pub async fn run(effort: Effort) -> Report {
    tokio::task::spawn_blocking(move || Run::new().all(effort)).await.expect("no panic")
}

struct Run {
    bench: Bench,
    dice: Dice,
    tokens: Vec<Issued>,
    /// Tokens that were released.
    gone: Vec<String>,
    mix: [&'static str; 4],
    fence: u64,
    scripts: u64,
    let_in: u64,
    several: u64,
    violations: Vec<String>,
}

struct Issued {
    token: String,
    ticket: u64,
}

impl Run {
    fn new() -> Self {
        let mut bench = Bench::new(&PROCESSES);
        bench.watch();
        Self {
            bench,
            dice: Dice(31),
            tokens: Vec::new(),
            gone: Vec::new(),
            mix: MIXES[0],
            fence: 0,
            scripts: 0,
            let_in: 0,
            several: 0,
            violations: Vec::new(),
        }
    }

    fn all(mut self, effort: Effort) -> Report {
        let start = Instant::now();
        let mut rounds = 0;
        while effort.goes_on(self.scripts, start) && self.violations.is_empty() {
            self.mix = MIXES[rounds % MIXES.len()];
            rounds += 1;
            for _ in 0..ROUND {
                self.step();
            }
            self.end_of_round();
        }
        let mut report = Report::default();
        report.figure("scripts", self.scripts);
        report.figure("tokens that were let in", self.let_in);
        report.figure("scripts that let in several", self.several);
        report.violated_if(self.let_in == 0 || self.several == 0, "too few were let in");
        self.violations.iter().for_each(|what| report.violated_if(true, what.as_str()));
        report
    }

    fn step(&mut self) {
        let known = self.tokens.len() as u64;
        match self.dice.below(100) {
            0..35 if known < MOST_TOKENS as u64 => self.ask_anew(),
            0..60 if known > 0 => self.ask_again(),
            60..84 if known > 0 => self.release(),
            84..90 if known > 0 => self.renew(),
            90..93 if known > 0 => self.downgrade(),
            93 => self.repeat(),
            94 => self.ask_late(),
            95 => self.listen_or_not(),
            // It has died.
            96 if known > 0 => drop(self.tokens.swap_remove(self.dice.below(known) as usize)),
            _ => thread::sleep(Duration::from_millis(self.dice.below(30))),
        }
    }

    fn any(&mut self) -> usize {
        self.dice.below(self.tokens.len() as u64) as usize
    }

    fn new_token(&mut self, limit: &str) -> String {
        let process = PROCESSES[self.dice.below(5) as usize];
        let mode = if self.dice.below(8) == 0 { 'n' } else { 's' };
        self.bench.token_with(process, limit, CLAIM, mode)
    }

    fn ask_anew(&mut self) {
        let limit = self.mix[self.dice.below(4) as usize];
        let token = self.new_token(limit);
        let is_try = self.dice.below(6) == 0;
        let (ticket, granted) = self.ask(&token, 0, is_try);
        if granted || !is_try {
            self.tokens.push(Issued { token, ticket });
        }
    }

    fn ask_again(&mut self) {
        let at = self.any();
        let (token, ticket) = (self.tokens[at].token.clone(), self.tokens[at].ticket);
        // One that has lost an answer does not know its place.
        let ticket = if self.dice.below(10) == 0 { 0 } else { ticket };
        self.tokens[at].ticket = self.ask(&token, ticket, false).0;
    }

    /// Asks for the lock; the place in the queue, and whether it is granted.
    fn ask(&mut self, token: &str, ticket: u64, is_try: bool) -> (u64, bool) {
        let ttl = TTLS[self.dice.below(3) as usize];
        let said = self.bench.ask(token, Args { ttl, ticket, not_after: 0, is_try });
        let (before, after) = self.looked();
        let held = holds(&before, token);
        match said {
            Said::Granted { fence, .. } => {
                self.must(fence > self.fence, "a fence is not above those before it");
                self.fence = self.fence.max(fence);
                self.must(holds(&after, token) || after.lives == -2, "granted and not held");
                if !held {
                    // A token that lost its place while it waited comes back to it.
                    let known = if ticket == 0 { u64::MAX } else { ticket };
                    let place = place(&before, token).unwrap_or(known);
                    let passed = after.queue.iter().any(|(_, other)| *other < place);
                    self.must(!passed, "a waiter was overtaken by the caller");
                    self.room(&before, &after, Some((token, place)), None);
                }
            }
            Said::Taken { .. } => {
                self.must(is_try || place(&after, token).is_some(), "it stands nowhere");
                self.room(&before, &after, None, None);
                self.front(&before, &after, Some(token));
            }
            Said::Late => self.must(false, "late without a limit"),
        }
        let ticket = place(&after, token).unwrap_or(ticket);
        (ticket, said.is_granted())
    }

    fn release(&mut self) {
        let at = self.any();
        let token = self.tokens[at].token.clone();
        if self.dice.below(10) == 0 {
            self.bench.keep(&token, 20);
        } else {
            self.bench.release(&token);
            self.tokens.swap_remove(at);
            self.gone.push(token.clone());
        }
        self.released(&token);
    }

    /// The same release once more, at any time.
    fn repeat(&mut self) {
        if self.gone.is_empty() {
            return;
        }
        let token = self.gone[self.dice.below(self.gone.len() as u64) as usize].clone();
        self.bench.release(&token);
        self.released(&token);
    }

    fn released(&mut self, token: &str) {
        let (before, after) = self.looked();
        self.room(&before, &after, None, Some(token));
        self.front(&before, &after, None);
    }

    fn renew(&mut self) {
        let at = self.any();
        let token = self.tokens[at].token.clone();
        let ttl = TTLS[self.dice.below(3) as usize];
        let state = self.bench.renew(&token, ttl);
        let (before, after) = self.looked();
        let held = before.alone.as_ref() == Some(&token)
            || before.together.iter().any(|(one, end)| *one == token && *end >= after.now);
        self.must(state > 0 || !held || before.lives < 5, "a lease in use was not extended");
        self.must(state == 0 || holds(&before, &token), "a renewal has made a lease");
        self.room(&before, &after, None, None);
    }

    fn downgrade(&mut self) {
        let at = self.any();
        let old = self.tokens[at].token.clone();
        if !old.ends_with(['s', 'n']) {
            return;
        }
        let new = self.new_token("r");
        let said = self.bench.downgrade(&old, &new);
        let (before, after) = self.looked();
        let Some(said) = said else {
            let was_alone = before.alone.as_ref() == Some(&old) && before.lives > 5;
            return self.must(!was_alone, "a lock was not downgraded");
        };
        self.must(said.fence() > self.fence, "a fence is not above those before it");
        self.fence = self.fence.max(said.fence());
        self.must(before.alone.as_ref() == Some(&old), "another one's lock was downgraded");
        self.must(after.alone.is_none(), "alone after a downgrade");
        self.front(&before, &after, None);
        self.tokens[at] = Issued { token: new, ticket: 0 };
    }

    fn ask_late(&mut self) {
        let limit = self.mix[self.dice.below(4) as usize];
        let token = self.new_token(limit);
        let said = self.bench.ask(&token, Args { not_after: 1, ..Args::default() });
        self.must(said == Said::Late, "late and answered");
        let (before, after) = self.looked();
        let left = holds(&after, &token) || place(&after, &token).is_some();
        self.must(!left && before.queue == after.queue, "late and not without a trace");
    }

    fn listen_or_not(&mut self) {
        let process = PROCESSES[self.dice.below(5) as usize];
        match self.bench.listens(process) {
            true => self.bench.deafen(process),
            false => self.bench.listen(process),
        }
    }

    /// Gives everything back. What died ends by itself, and the last release finds that.
    fn end_of_round(&mut self) {
        while let Some(Issued { token, .. }) = self.tokens.pop() {
            self.bench.release(&token);
            self.released(&token);
            self.gone.push(token);
        }
        let start = Instant::now();
        loop {
            let last = self.new_token("");
            self.bench.release(&last);
            self.released(&last);
            let (_, after) = self.looked();
            if after.queue.is_empty() && after.lives == -2 {
                break;
            }
            if start.elapsed() > END {
                return self.must(false, "something is left");
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.gone.clear();
        for process in PROCESSES {
            if !self.bench.listens(process) {
                self.bench.listen(process);
            }
        }
        PROCESSES.iter().for_each(|process| drop(self.bench.heard(process)));
    }

    /// What was seen around the last script, and what holds after each.
    fn looked(&mut self) -> (Sight, Sight) {
        let (before, after) = self.bench.seen().clone();
        self.scripts += 1;
        self.must(after.lives != -1, "a lock without an end");
        self.must(after.queue.is_empty() || after.queue_lives > 0, "a queue without an end");
        if let Some((_, last)) = after.together.last() {
            let end = after.now as i64 + after.lives;
            // The time to live is asked after the time: on a busy machine some milliseconds later.
            let early = *last as i64 - end;
            self.must((-1..=100).contains(&early), "the lock does not end with the last lease");
        }
        (before, after)
    }

    /// No lease was lost, every token that was let in fits, and none was overtaken.
    fn room(
        &mut self,
        before: &Sight,
        after: &Sight,
        asked: Option<(&str, u64)>,
        released: Option<&str>,
    ) {
        let stays = |token: &str| holds(after, token) || released == Some(token);
        for (token, end) in &before.together {
            self.must(*end <= after.now || stays(token), "a lease was taken away");
        }
        if let Some(alone) = &before.alone {
            let over = before.lives <= (after.now - before.now) as i64 + 1;
            self.must(over || stays(alone), "the lock of one that is alone was taken away");
        }
        // Those that surely were live while the script ran.
        let stayed =
            after.together.iter().filter(|(token, end)| holds(before, token) && *end >= after.now);
        let stayed = stayed.count();
        let queue = before.queue.iter().map(|(token, ticket)| (token.as_str(), *ticket));
        let new = queue.chain(asked.filter(|(token, _)| place(before, token).is_none()));
        let mut new: Vec<_> =
            new.filter(|(token, _)| holds(after, token) && !holds(before, token)).collect();
        // In the order in which they were let in.
        new.sort_by_key(|(_, ticket)| *ticket);
        self.let_in += new.len() as u64;
        self.several += u64::from(new.len() > 1);
        for (count, (token, _)) in (stayed + 1..).zip(&new) {
            self.must(
                limit(token).is_none_or(|limit| count <= limit),
                "one more than there may be",
            );
            self.must(after.alone.is_none() || new.len() == 1, "alone beside others");
        }
        let last = new.iter().filter_map(|(token, _)| place(before, token)).max();
        let passed = before.queue.iter().any(|(token, ticket)| {
            last.is_some_and(|last| *ticket < last) && place(after, token).is_some()
        });
        self.must(!passed, "a waiter was overtaken");
    }

    /// The first in the queue cannot have the lock yet.
    fn front(&mut self, before: &Sight, after: &Sight, asked: Option<&str>) {
        let Some((first, _)) = after.queue.first() else { return };
        // The lock may have expired between the script and the look.
        let was_held = before.alone.is_some() || !before.together.is_empty();
        let over = before.lives <= (after.now - before.now) as i64 + 1;
        let expired = was_held && over && after.lives == -2;
        // And so may what it was reserved for: on a busy machine the look comes later than that.
        let waited = before.queue.iter().map(|(token, _)| token.as_str()).chain(asked);
        let lapsed = after.now - before.now + 1 >= CLAIM
            && after.lives == -2
            && waited.into_iter().any(|token| place(after, token).is_none());
        if after.alone.is_some() || expired || lapsed {
            return;
        }
        let process = first.split('.').next().unwrap_or_default();
        let polls = first.split('.').nth(2).is_some_and(|end| end.contains('n'));
        let lives = polls || self.bench.listens(process) || asked == Some(first);
        self.must(lives, "a dead one stands in front");
        // Those that may have been live when the script ran.
        let held = after.together.iter().filter(|(_, end)| *end >= before.now).count();
        let waits = limit(first).is_some_and(|limit| held >= limit);
        self.must(waits, "the first of the queue was not let in");
    }

    fn must(&mut self, holds: bool, what: &str) {
        if !holds {
            let (before, after) = self.bench.seen();
            self.violations
                .push(format!("{what} (script {}):\n{before:?}\n{after:?}", self.scripts));
        }
    }
}

fn holds(sight: &Sight, token: &str) -> bool {
    sight.alone.as_deref() == Some(token) || sight.together.iter().any(|(one, _)| one == token)
}

/// The ticket of a token that waits.
fn place(sight: &Sight, token: &str) -> Option<u64> {
    sight.queue.iter().find(|(one, _)| one == token).map(|(_, ticket)| *ticket)
}

/// How many may hold the lock beside a token; `None` for any number.
fn limit(token: &str) -> Option<usize> {
    let end = token.rsplit(['s', 'n']).next().unwrap_or_default();
    match end {
        "" => Some(1),
        "r" => None,
        number => number.parse().ok(),
    }
}
