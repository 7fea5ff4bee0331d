//! Running a script that may give a token the lock: in front of it the counter is raised where that is due,
//! and it is run again where its answer shows that the counter or the clock of the server has changed.

use std::time::Duration;

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{BackendKind, Exchange, Exchanged, Fault, Term};
use redis::Value;

use crate::commands::fence::Fence;
use crate::commands::first_contact;
use crate::commands::server::Server;
use crate::connection::connection::{Connection, RedisOr, ints};
use crate::script::{Arg, Script, Wakes};

/// How often the script is run, when the counter or the clock of the server has changed.
const TRIES: usize = 3;
/// A script must not run any more this long after its caller has stopped waiting for the answer.
const NOT_AFTER: Duration = Duration::from_secs(1);

/// A script that may give the lock to a token, and what it is run with. Its keys are the lock, the queue
/// and the counter.
pub(crate) struct GrantScript<'a, 'b> {
    /// The token that may get the lock.
    pub(crate) owner: &'a Owner,
    /// On what terms.
    pub(crate) term: Term,
    pub(crate) script: &'a Script,
    pub(crate) args: &'b mut [Arg<'a>],
    /// Which of the arguments is the server's time after which the script must not run: it is filled in for
    /// each run.
    pub(crate) not_after: usize,
    /// A no leaves something of the token in the store.
    pub(crate) stays: bool,
}

/// What the script says.
pub(crate) enum ScriptOutcome<T> {
    /// The lock is the token's.
    Granted {
        /// A value of the counter, drawn for this grant.
        fence: u64,
        /// Read before the script was sent.
        sent: Moment,
        /// Others stand in the queue.
        contended: bool,
    },
    /// It is not.
    Refused(T),
}

impl GrantScript<'_, '_> {
    /// Runs it until the answer can be believed. `refusal` reads the numbers behind the state and the token
    /// of an answer that is no; `None` if they are not what the script says.
    pub(crate) async fn run<T>(
        mut self,
        server: &Server,
        connection: &mut Connection,
        refusal: impl Fn([Option<i64>; 5]) -> Option<T>,
        answer_by: Moment,
    ) -> Result<ScriptOutcome<T>, Fault> {
        let (lock, fences) = (&self.owner.lock, &server.fences);
        let counter = &*fences.of(lock);
        server.keep_subscribed(lock, self.term.stored_for());
        for _ in 0..TRIES {
            if fences.needs_raise(counter, connection) {
                Box::pin(first_contact::run(server, lock, connection, answer_by)).await?;
                fences.raise(counter, Some(lock), connection, answer_by).await?;
            }
            let seen = counter.seen();
            let (sent, answer) = self.ask(server, counter, connection, answer_by).await?;
            server.record.used(sent);
            match ints(&answer) {
                [Some(1), _, Some(fence), Some(behind), ..] => {
                    let fence = u64::try_from(fence).unwrap_or(0);
                    if fences.is_new(counter, fence, seen)? {
                        fences.drawn(counter, sent, &connection.live);
                        server.confirm(connection, None, answer_by).await?;
                        return Ok(ScriptOutcome::Granted { fence, sent, contended: behind != 0 });
                    }
                    // Data was lost under a live connection: raise the counter and draw again.
                    fences.set_raised(counter, &connection.live, false);
                }
                [Some(0), _, numbers @ ..] => {
                    let refused =
                        refusal(numbers).ok_or_else(|| connection.live.desynchronized())?;
                    return Ok(ScriptOutcome::Refused(refused));
                }
                // Too late by the server's clock, which may have been set: ask again with its time.
                [Some(3), _, Some(now), ..] => connection.live.server_clock.set(now),
                _ => return Err(connection.live.desynchronized()),
            }
        }
        Err(Fault::passing(BackendKind::Other, "the server's clock or its counters are unsteady"))
    }

    /// Runs it once. Returns when it was sent, and its answer.
    async fn ask(
        &mut self,
        server: &Server,
        counter: &Fence,
        connection: &mut Connection,
        answer_by: Moment,
    ) -> Result<(Moment, Vec<Value>), Fault> {
        let owner = self.owner;
        if connection.resent {
            owner.sending_again();
        }
        let (lock, counter) = (&owner.lock, &counter.key);
        let keys = [Arg::Text(lock.stored()), Arg::Queue(lock), Arg::Text(counter)];
        let lifetime = server.command_timeout.saturating_add(NOT_AFTER);
        self.args[self.not_after] = Arg::Number(connection.live.server_clock.time_after(lifetime));
        let sent = Clock::Boottime.now();
        // R7: nothing that could create the lock is sent behind its release.
        if !owner.may_send(sent, self.term.stored_for(), connection.live.number) {
            return Err(Fault::given_up());
        }
        if self.stays {
            owner.leaves_a_trace();
        }
        let given_up = || owner.is_retired();
        let answer =
            connection.run_unless(given_up, self.script, &keys, self.args, answer_by).await;
        // R9: an error of the script is an answer; the script will not run any more.
        if let Err(RedisOr::Redis(error)) = &answer
            && error.code().is_some()
        {
            owner.answered(connection.live.number);
        }
        let answer = answer.map_err(RedisOr::into_fault)?;
        let Value::Array(answer) = answer else { return Err(connection.live.desynchronized()) };
        // R3: an answer that carries another token drops the connection.
        match answer.get(1) {
            Some(Value::BulkString(token)) if *token == owner.token.as_bytes() => {}
            _ => return Err(connection.live.desynchronized()),
        }
        match answer.first() {
            Some(Value::Int(1)) => owner.answered_yes(connection.live.number),
            _ => owner.answered(connection.live.number),
        }
        Ok((sent, answer))
    }
}

/// The exchanges of one server.
pub(crate) struct Exchanges {
    script: Script,
}

impl Exchanges {
    pub(crate) fn new(wakes: Wakes) -> Self {
        Self { script: Script::downgrade(wakes) }
    }

    pub(crate) async fn exchange(
        &self,
        server: &Server,
        exchange: &Exchange,
        connection: &mut Connection,
        answer_by: Moment,
    ) -> Result<Exchanged, Fault> {
        let Exchange { old, new, term } = exchange;
        let mut args = [
            Arg::Text(&new.token),
            Arg::Number(millis(term.stored_for())),
            Arg::Text(&old.token),
            Arg::Number(0),
            Arg::Text(""),
        ];
        let tag = server.tag(&new.lock);
        if let Some(tag) = &tag {
            args[4] = Arg::Text(tag);
        }
        let grant = GrantScript {
            owner: new,
            term: *term,
            script: &self.script,
            args: &mut args[..4 + usize::from(tag.is_some())],
            not_after: 3,
            // The old token holds the lock: the new one may have it whatever is answered to this run.
            stays: true,
        };
        Ok(match grant.run(server, connection, |_| Some(()), answer_by).await? {
            ScriptOutcome::Granted { fence, sent, contended } => {
                Exchanged::Granted { fence, sent, contended }
            }
            ScriptOutcome::Refused(()) => Exchanged::NotHeld,
        })
    }
}
