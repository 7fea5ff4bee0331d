//! Runs a script that may grant the lock to a token. Raises the counter first if that is due, and runs the script again
//! if its reply shows that the counter or the clock of the server has changed.

use std::time::Duration;

use distlock_core::clock::{Clock, Moment, millis};
use distlock_core::store::owner::Owner;
use distlock_core::store::{BackendKind, Exchange, Exchanged, Fault, Term};
use redis::Value;

use crate::commands::fence::Fence;
use crate::commands::first_contact;
use crate::commands::server::Server;
use crate::connection::live::{ConnectionHandle, RedisOr, ints};
use crate::script::{Arg, Script, Wakes};

/// How often the script is run if the counter or the clock of the server has changed.
const TRIES: usize = 3;
/// A script must not run later than this after its caller has stopped waiting for the reply.
const NOT_AFTER: Duration = Duration::from_secs(1);

/// A script that may grant the lock to a token, with its arguments. Its keys are the lock, the queue and the counter.
pub(crate) struct GrantScript<'a, 'b> {
    /// The token that may get the lock.
    pub(crate) owner: &'a Owner,
    /// The terms of the lease.
    pub(crate) term: Term,
    pub(crate) script: &'a Script,
    pub(crate) args: &'b mut [Arg<'a>],
    /// The index of the argument that is the server's time after which the script must not run. It is filled in for
    /// each run.
    pub(crate) not_after: usize,
    /// Whether a refusal leaves the token in the store.
    pub(crate) stays: bool,
}

/// The result of the script.
pub(crate) enum ScriptOutcome<T> {
    /// The token has the lock.
    Granted {
        /// A value of the counter, drawn for this grant.
        fence: u64,
        /// When the script was sent; read before.
        sent: Moment,
        /// Whether others wait in the queue.
        contended: bool,
    },
    /// The token does not have the lock.
    Refused(T),
}

impl GrantScript<'_, '_> {
    /// Runs the script until its reply can be trusted. `refusal` reads the numbers after the state and the token of a
    /// refusal; it returns `None` if they are not valid.
    pub(crate) async fn run<T>(
        mut self,
        server: &Server,
        connection: &mut ConnectionHandle,
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
                    // Data was lost while the connection was up: raise the counter and draw again.
                    fences.set_raised(counter, &connection.live, false);
                }
                [Some(0), _, numbers @ ..] => {
                    let refused =
                        refusal(numbers).ok_or_else(|| connection.live.desynchronized())?;
                    return Ok(ScriptOutcome::Refused(refused));
                }
                // Too late by the server's clock, which may have been set: try again with its time.
                [Some(3), _, Some(now), ..] => connection.live.server_clock.set(now),
                _ => return Err(connection.live.desynchronized()),
            }
        }
        Err(Fault::passing(BackendKind::Other, "the server's clock or its counters are unsteady"))
    }

    /// Runs the script once. Returns when it was sent, and its reply.
    async fn ask(
        &mut self,
        server: &Server,
        counter: &Fence,
        connection: &mut ConnectionHandle,
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
        // R7: nothing that could create the lock is sent after its release.
        if !owner.may_send(sent, self.term.stored_for(), connection.live.number) {
            return Err(Fault::given_up());
        }
        if self.stays {
            owner.leaves_a_trace();
        }
        let given_up = || owner.is_retired();
        let answer =
            connection.run_unless(given_up, self.script, &keys, self.args, answer_by).await;
        // R9: an error of the script is a reply. The script will not run any more.
        if let Err(RedisOr::Redis(error)) = &answer
            && error.code().is_some()
        {
            owner.answered(connection.live.number);
        }
        let answer = answer.map_err(RedisOr::into_fault)?;
        let Value::Array(answer) = answer else { return Err(connection.live.desynchronized()) };
        // R3: a reply that carries another token drops the connection.
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

/// The exchanges of one deployment: one token replaces another.
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
        connection: &mut ConnectionHandle,
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
            // The old token holds the lock, so the new one may have it whatever this run replies.
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
