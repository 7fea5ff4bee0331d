//! Commands for a node of a quorum besides those of any store: to vote in one write, to accept a fencing token, and to
//! take a vote back. `identity` asks which server it is.
//!
//! The process proposes the fencing tokens of a quorum, since counters of several nodes agree on nothing. A node
//! accepts a token if it is above all that it has accepted, which `ZADD GT` does in one step. The token counts once a
//! majority has accepted it while the token's owner had the lock there.

use std::sync::Arc;
use std::time::Duration;

use distlock_core::clock::{Clock, Moment};
use distlock_core::name::LockName;
use distlock_core::redlock::Accepted;
use distlock_core::store::owner::Owner;
use distlock_core::store::{Answer, Attempt, Entry, Fault};
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::commands::acquire::set;
use crate::connection::error::{fault, unexpected};
use crate::connection::link::Link;
use crate::connection::live::{ConnectionHandle, LiveConnection, RedisOr, integer};
use crate::connection::reply_check::echo;
use crate::script::Arg;
use crate::store::RedisStore;

/// The member of the sorted set whose score is the last accepted fencing token.
const LAST: &str = "last";

/// The reply of a node to an attempt.
#[derive(Debug)]
pub(crate) struct NodeVote {
    pub(crate) sent: Moment,
    /// `Ok` if the token has the lock at this node, else for how long another token has it.
    pub(crate) given: Result<(), Option<Duration>>,
    pub(crate) accepted: Accepted,
}

impl RedisStore {
    /// Returns the link over which everything is sent to a node of a quorum. No node of a quorum is a cluster.
    pub(crate) fn node_link(&self) -> Result<&Arc<Link>, Fault> {
        self.link.as_ref().ok_or_else(unexpected)
    }

    /// Acquires the lock if it is free and proposes a fencing token, in one write.
    pub(crate) async fn vote(
        self: Arc<Self>,
        attempt: Attempt,
        proposal: u64,
        answer_by: Moment,
    ) -> Result<NodeVote, Fault> {
        let Attempt { owner, term, .. } = &attempt;
        if !owner.limit.is_alone() {
            return Box::pin(self.shared_vote(&attempt, proposal, answer_by)).await;
        }
        let mut connection = self.node_link()?.connection(answer_by).await?;
        if owner.lock.fence().is_some() {
            self.server.keep_subscribed(&owner.lock, term.stored_for());
        }
        let (sent, answers) =
            self.ask_for_vote(&attempt, proposal, &mut connection, answer_by).await?;
        let [set, changed] = answers.as_slice() else {
            return Err(connection.live.unexpected_answer());
        };
        let given = match set {
            Value::Okay => {
                owner.answered_yes(connection.live.number);
                Ok(())
            }
            Value::Nil => {
                owner.answered(connection.live.number);
                Err(())
            }
            Value::ServerError(error) => {
                owner.answered(connection.live.number);
                let error = RedisError::from(error.clone());
                connection.live.check_error(&error);
                return Err(fault(&error));
            }
            _ => return Err(connection.live.unexpected_answer()),
        };
        let accepted = match is_accepted(changed, &connection.live)? {
            true => Accepted::Yes,
            // The next proposal asks by how much.
            false => Accepted::Above(0),
        };
        let given = match given {
            Err(()) if attempt.look => {
                Err(Box::pin(remaining(owner, &mut connection, answer_by)).await?)
            }
            given => given.map_err(|()| None),
        };
        Ok(NodeVote { sent, given, accepted })
    }

    /// Sends the vote. Returns when it was sent, and the replies to `SET` and `ZADD`.
    async fn ask_for_vote(
        &self,
        attempt: &Attempt,
        proposal: u64,
        connection: &mut ConnectionHandle,
        answer_by: Moment,
    ) -> Result<(Moment, Vec<Value>), Fault> {
        let Attempt { owner, term, .. } = attempt;
        let mut pipeline = Pipeline::with_capacity(3);
        pipeline.add_command(set(attempt));
        pipeline.add_command(self.zadd(&owner.lock, proposal));
        let sent = Clock::Boottime.now();
        // R3: recognizes the replies.
        let is_marked = connection.live.marks.next_of_votes(sent);
        if is_marked {
            pipeline.add_command(echo(owner.mark()));
        }
        self.server.record.used(sent);
        // R7: nothing that could create the lock is sent after its release.
        if !owner.may_send(sent, term.stored_for(), connection.live.number) {
            return Err(Fault::given_up());
        }
        let mut answers = connection.pipeline(&pipeline, sent, answer_by).await?;
        if is_marked {
            let own = connection.live.replies_of((owner.mark(), sent), &answers)?.len();
            answers.truncate(own);
        }
        Ok((sent, answers))
    }

    /// Votes for a lock that several may hold, which takes a script.
    async fn shared_vote(
        &self,
        attempt: &Attempt,
        proposal: u64,
        answer_by: Moment,
    ) -> Result<NodeVote, Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        let shared =
            self.queue.try_share(&self.server, attempt, &mut connection, answer_by).await?;
        let (given, sent) = match shared {
            Answer::Granted { sent, .. } => (Ok(()), sent),
            Answer::Taken { remaining } => (Err(remaining), Clock::Boottime.now()),
        };
        let accepted = match given {
            Ok(()) => self.propose(&attempt.owner.lock, proposal, answer_by).await?,
            Err(_) => Accepted::Above(0),
        };
        Ok(NodeVote { sent, given, accepted })
    }

    /// Proposes a fencing token. It counts for a lock only if it is sent after the lock was granted.
    pub(crate) async fn propose(
        &self,
        lock: &LockName,
        proposal: u64,
        answer_by: Moment,
    ) -> Result<Accepted, Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(self.zadd(lock, proposal));
        let key = fences_of(&self.server.fences.of(lock).key);
        pipeline.cmd("ZSCORE").arg(key).arg(LAST);
        let answers = connection.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
        match answers.as_slice() {
            [changed, score] => accepted(changed, score, &connection.live),
            _ => Err(connection.live.unexpected_answer()),
        }
    }

    fn zadd(&self, lock: &LockName, proposal: u64) -> Cmd {
        let fence = self.server.fences.of(lock);
        let key = fences_of(&fence.key);
        let mut zadd = Cmd::with_capacity(6, key.len() + 40);
        zadd.arg("ZADD").arg(key).arg("GT").arg("CH").arg(proposal).arg(LAST);
        zadd
    }

    /// Takes back the vote of a token without a majority in favour of an earlier one. Returns whether it did.
    pub(crate) async fn offer(
        &self,
        owner: &Owner,
        ticket: u64,
        answer_by: Moment,
    ) -> Result<bool, Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        let keys = [Arg::Text(owner.lock.stored()), Arg::Queue(&owner.lock)];
        let args = [Arg::Text(&owner.token), Arg::Number(ticket)];
        match connection.run(&self.queue.offer, &keys, &args, answer_by).await? {
            Value::Array(answer) => match answer.first() {
                Some(Value::Int(stepped)) => Ok(*stepped != 0),
                _ => Err(connection.live.unexpected_answer()),
            },
            _ => Err(connection.live.unexpected_answer()),
        }
    }

    /// Acquires the lock for a token that holds it elsewhere, if it is free here and has no waiters.
    pub(crate) async fn fill(
        self: Arc<Self>,
        entry: Entry,
        answer_by: Moment,
    ) -> Result<(), Fault> {
        let mut connection = self.node_link()?.connection(answer_by).await?;
        self.queue.fill(&self.server, &entry, &mut connection, answer_by).await
    }
}

/// Returns the key of the last fencing token that a node has accepted, beside a counter of its own.
fn fences_of(counter: &str) -> String {
    [counter, ":quorum"].concat()
}

/// Asks for how long another token has the lock.
async fn remaining(
    owner: &Owner,
    connection: &mut ConnectionHandle,
    answer_by: Moment,
) -> Result<Option<Duration>, Fault> {
    let mut pttl = Cmd::with_capacity(2, 64);
    pttl.arg("PTTL").arg(&**owner.lock.stored());
    let left = connection.command(&pttl, answer_by).await.map_err(RedisOr::into_fault)?;
    Ok(u64::try_from(integer(&left)?).ok().map(Duration::from_millis))
}

/// Reads the reply to the `ZADD` of a proposed fencing token.
fn is_accepted(changed: &Value, live: &LiveConnection) -> Result<bool, Fault> {
    live.check_answer(changed);
    Ok(integer(changed)? != 0)
}

fn accepted(changed: &Value, score: &Value, live: &LiveConnection) -> Result<Accepted, Fault> {
    if is_accepted(changed, live)? {
        return Ok(Accepted::Yes);
    }
    let score = match score {
        Value::Double(score) => Some(*score),
        value => text(value).and_then(|score| score.parse::<f64>().ok()),
    };
    // Only processes of this crate write scores, as whole numbers.
    let score = score.filter(|score| *score >= 0.0).ok_or_else(|| live.unexpected_answer())?;
    Ok(Accepted::Above(score as u64))
}

pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
