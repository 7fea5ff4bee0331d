//! Waiting in the queue: one idempotent script that enqueues a token, acquires a free lock, confirms a reservation and
//! polls (R3, R4, R11). For shared tokens it is also the attempt without a place in the queue (R2).

use std::time::Duration;

use distlock_core::clock::{Moment, millis};
use distlock_core::store::owner::QUEUE_LIFE;
use distlock_core::store::{Answer, Attempt, Entered, Entry, Fault};

use crate::commands::inspect::taken_over;
use crate::commands::run_script::{GrantScript, ScriptOutcome};
use crate::commands::server::Server;
use crate::connection::live::ConnectionHandle;
use crate::script::{Arg, Script, ScriptPair, Wakes};

/// The fate of a token that cannot have the lock yet.
#[derive(Clone, Copy)]
enum WhenTaken {
    /// The token waits in the queue.
    Enqueue,
    /// The token leaves nothing behind.
    Leave,
}

/// The queues of one deployment.
pub(crate) struct Queue {
    acquire: ScriptPair,
    pub(crate) offer: Script,
}

impl Queue {
    pub(crate) fn new(wakes: Wakes) -> Self {
        Self { acquire: ScriptPair::acquire(wakes), offer: Script::offer() }
    }

    /// Acquires the lock if it is free or reserved for the owner. Otherwise enqueues the token.
    pub(crate) async fn enter(
        &self,
        server: &Server,
        entry: &Entry,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<Entered, Fault> {
        server.is_awaited(&entry.owner.lock, entry.term.stored_for());
        self.run(server, entry, WhenTaken::Enqueue, connection, answer_by).await
    }

    /// Acquires the lock beside its other holders, if there is room and no waiter in the queue.
    pub(crate) async fn try_share(
        &self,
        server: &Server,
        attempt: &Attempt,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<Answer, Fault> {
        let Attempt { owner, term, .. } = attempt;
        // R2: the engine has sent this token meanwhile, and only the reply to that counts.
        if !connection.resent && !owner.is_unsent() {
            return taken_over(attempt, connection, answer_by).await;
        }
        let entry = Entry { owner: owner.clone(), term: *term, ticket: 0 };
        Ok(match self.run(server, &entry, WhenTaken::Leave, connection, answer_by).await? {
            Entered::Granted { fence, sent, .. } => Answer::Granted { fence, sent },
            Entered::Queued { remaining, .. } => Answer::Taken { remaining },
        })
    }

    /// Acquires the lock if it is free and has no waiters, although its token was sent before: the token holds the lock
    /// at other nodes.
    pub(crate) async fn fill(
        &self,
        server: &Server,
        entry: &Entry,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        self.run(server, entry, WhenTaken::Leave, connection, answer_by).await.map(|_| ())
    }

    async fn run(
        &self,
        server: &Server,
        entry: &Entry,
        when_taken: WhenTaken,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<Entered, Fault> {
        let Entry { owner, term, ticket } = entry;
        let mut args = [
            Arg::Text(&owner.token),
            Arg::Number(millis(term.stored_for())),
            Arg::Number(*ticket),
            Arg::Number(millis(QUEUE_LIFE)),
            Arg::Number(0),
            Arg::Number(1),
            Arg::Number(0),
        ];
        let is_try = matches!(when_taken, WhenTaken::Leave);
        let mut count = 5 + usize::from(is_try);
        let tag = server.tag(&owner.lock);
        if let Some(tag) = &tag {
            args[count] = Arg::Text(tag);
            count += 1;
        }
        let grant = GrantScript {
            owner,
            term: *term,
            script: self.acquire.of(owner.limit),
            args: &mut args[..count],
            not_after: 4,
            stays: !is_try,
        };
        match grant.run(server, connection, position, answer_by).await? {
            ScriptOutcome::Granted { fence, sent, contended } => {
                Ok(Entered::Granted { fence, sent, contended })
            }
            ScriptOutcome::Refused(QueuePosition { ticket, remaining, rank, behind, added }) => {
                // With a ticket from a spoilt counter the token would stay behind all others, even after the counter
                // was fixed.
                server.fences.check(ticket)?;
                Ok(Entered::Queued { ticket, remaining, rank, behind, added })
            }
        }
    }
}

/// The position of a token in the queue.
struct QueuePosition {
    ticket: u64,
    remaining: Option<Duration>,
    rank: u64,
    behind: u64,
    added: bool,
}

fn position(numbers: [Option<i64>; 5]) -> Option<QueuePosition> {
    let [ticket, remaining, rank, behind, added] = numbers;
    let number = |number: Option<i64>| Some(u64::try_from(number?).unwrap_or(0));
    Some(QueuePosition {
        ticket: number(ticket)?,
        remaining: u64::try_from(remaining?).ok().map(Duration::from_millis),
        rank: number(rank)?,
        behind: number(behind)?,
        added: added? != 0,
    })
}
