//! One of the processes: tasks that read, write and hold permits, wait for any time or for none, are
//! cancelled, and hold a lock for longer or shorter than its lease.

use std::time::Duration;

use distlock::{LockError, LockManager, LockMode, LockRequest};
use distlock_testkit::{LONG, data_at};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::witness::{Kind, Notes};
use crate::effort::Dice;
use crate::stamp::now;

const TASKS: u64 = 5;
/// The lock that one task of each process asks for, and no other. It takes its time: what it is given was
/// let in since it asked.
const ALONE: u8 = 2;
/// What is asked of each lock. In the second one there is one limit only.
pub(super) const MIXES: [&[Kind]; 3] = [
    &[Kind::Write, Kind::Read, Kind::Read, Kind::Read],
    &[Kind::Permits(3)],
    &[Kind::Write, Kind::Read, Kind::Permits(2), Kind::Permits(3), Kind::Permits(5)],
];

/// Until it is over, and then until it is killed.
pub(super) async fn run() -> ! {
    let number = std::env::var("SOAK_NUMBER").expect("its number");
    let notes = std::env::var("SOAK_NOTES").expect("where it notes what it sees");
    let board = data_at(&std::env::var("SOAK_BOARD").expect("the board")).await;
    let ttl = std::env::var("SOAK_TTL").ok().and_then(|ttl| ttl.parse().ok()).expect("ms");
    let manager = LockManager::from_env().expect("a manager");
    let notes = Notes::create(notes.as_ref());
    board.clone().rpush::<_, _, ()>("ready", &number).await.expect("RPUSH");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let caller = Caller {
            manager: manager.clone(),
            ttl,
            notes: notes.clone(),
            dice: Dice(now() ^ task << 56),
            board: board.clone(),
            is_alone: task == 0,
            is_clean: true,
        };
        tasks.spawn(caller.call());
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    let mut board = board;
    for (key, mix) in (0..).zip(MIXES) {
        for kind in mix {
            let request = ask(&manager, key, *kind, ttl).wait(LONG);
            match request.run(async {}).await {
                // Not every store has every kind.
                Ok(()) | Err(LockError::InvalidOption { .. }) => {}
                Err(error) => {
                    let text =
                        format!("{kind:?} of key {key} was not to be had in the end: {error}");
                    board.rpush::<_, _, ()>("errors", text).await.expect("RPUSH");
                }
            }
        }
    }
    manager.close(LONG).await;
    board.sadd::<_, _, ()>("done", number).await.expect("SADD");
    std::future::pending().await
}

fn ask(manager: &LockManager, key: u8, kind: Kind, ttl: u64) -> LockRequest {
    let request = manager.lock(format!("storm-{key}")).ttl(Duration::from_millis(ttl));
    match kind {
        Kind::Write => request.mode(LockMode::Write),
        Kind::Read => request.mode(LockMode::Read),
        Kind::Permits(permits) => request.permits(permits),
    }
}

struct Caller {
    manager: LockManager,
    /// Of all locks, in ms.
    ttl: u64,
    notes: Notes,
    dice: Dice,
    board: MultiplexedConnection,
    /// No other task of this process asks for the same lock.
    is_alone: bool,
    /// Its last call has left nothing that this one could be given.
    is_clean: bool,
}

impl Caller {
    async fn call(mut self) {
        while !self.board.exists::<_, bool>("over").await.expect("EXISTS") {
            for _ in 0..10 {
                self.once().await;
                sleep(Duration::from_millis(self.dice.below(3) * self.dice.below(10))).await;
            }
        }
    }

    async fn once(&mut self) {
        let key = if self.is_alone { ALONE } else { self.dice.below(ALONE.into()) as u8 };
        let (arrived, was_clean) = (now(), std::mem::replace(&mut self.is_clean, false));
        let mix = MIXES[usize::from(key)];
        let kind = mix[self.dice.below(mix.len() as u64) as usize];
        let request = ask(&self.manager, key, kind, self.ttl);
        let request = match self.dice.below(4) {
            _ if self.is_alone => request.wait(LONG),
            0 => request.wait(Duration::ZERO),
            1 => request.wait(Duration::from_millis(self.dice.below(300))),
            _ => request.wait(LONG),
        };
        // Cancelled while it waits, or not.
        let cancelled = match self.dice.below(3) {
            0 if !self.is_alone => Duration::from_millis(self.dice.below(200)),
            _ => 2 * LONG,
        };
        let Ok(Ok(guard)) = timeout(cancelled, request.acquire()).await else { return };
        // Some bodies outlast their first lease, most are short.
        let length = match self.dice.below(100) {
            0 => self.dice.below(4 * self.ttl),
            1..10 => self.dice.below(200),
            _ => self.dice.below(15),
        };
        let end = now() + length * 1_000_000;
        let arrived = if self.is_alone && was_clean { arrived } else { 0 };
        let note = self.notes.begin(key, kind, guard.fencing_token(), arrived);
        loop {
            // In this order: at that time the lease was there.
            let at = now();
            if !guard.is_held() || guard.remaining().is_zero() {
                return note.lost();
            }
            note.seen(at);
            if at >= end {
                break;
            }
            sleep(Duration::from_millis(1 + self.dice.below(4))).await;
        }
        if self.is_alone || self.dice.below(2) == 0 {
            self.is_clean = guard.release().await.is_ok();
        }
    }
}
