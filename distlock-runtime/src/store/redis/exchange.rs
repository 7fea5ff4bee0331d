//! The exchange of a token that has the lock alone for one that holds it with others, in one script: in
//! between no token can get the lock that would keep the new one out.

use redis::Value;

use super::connection::{Connection, RedisOr, ints};
use super::queue::NOT_AFTER;
use super::script::{Arg, Script};
use super::server::Server;
use crate::clock::{Clock, Moment};
use crate::error::BackendKind;
use crate::limits::millis;
use crate::store::{Exchange, Exchanged, Fault};

/// How often the script is run for one exchange, when the counter or the clock of the server has changed.
const TRIES: usize = 3;

/// The exchanges of one server.
pub(super) struct Exchanges {
    script: Script,
}

impl Exchanges {
    pub(super) fn new() -> Self {
        Self { script: Script::downgrade() }
    }

    pub(super) async fn exchange(
        &self,
        server: &Server,
        exchange: &Exchange,
        answer_by: Moment,
    ) -> Result<Exchanged, Fault> {
        let (lock, fences) = (&exchange.new.lock, &server.fences);
        let mut live = server.pool.commands(lock.stored()).live(answer_by).await?;
        let other = fences.of_other_prefix(lock);
        server.keep_subscribed(lock, exchange.term.stored_for());
        let counter = other.as_deref().unwrap_or(&fences.own);
        for _ in 0..TRIES {
            if !fences.is_raised(counter, &live) {
                fences.raise(counter, Some(lock), &mut live, answer_by).await?;
            }
            let seen = counter.seen();
            let (sent, answer) = self.ask(server, exchange, &mut live, answer_by).await?;
            server.record.used(sent);
            match ints(&answer) {
                [Some(1), _, Some(fence), Some(behind), ..] => {
                    let fence = u64::try_from(fence).unwrap_or(0);
                    if fences.is_new(counter, fence, seen)? {
                        return Ok(Exchanged::Granted { fence, sent, contended: behind != 0 });
                    }
                    // Data was lost under a live connection: raise the counter and draw again.
                    fences.set_raised(counter, &live, false);
                }
                [Some(0), ..] => return Ok(Exchanged::NotHeld),
                // Too late by the server's clock, which may have been set: ask again with its time.
                [Some(3), _, Some(now), ..] => fences.server_clock.set(now),
                _ => return Err(live.desynchronized()),
            }
        }
        Err(Fault::passing(BackendKind::Other, "the server's clock or its counters are unsteady"))
    }

    /// Runs the script once. Returns when it was sent, and its answer.
    async fn ask(
        &self,
        server: &Server,
        exchange: &Exchange,
        live: &mut Connection,
        answer_by: Moment,
    ) -> Result<(Moment, Vec<Value>), Fault> {
        let Exchange { old, new, term } = exchange;
        // R7: nothing that could create the lock is sent behind its release.
        if new.is_retired() {
            return Err(Fault::given_up());
        }
        let counter = new.lock.fence().unwrap_or(&server.fences.own.key);
        let keys = [Arg::Text(new.lock.stored()), Arg::Queue(&new.lock), Arg::Text(counter)];
        let lifetime = server.command_timeout.saturating_add(NOT_AFTER);
        let args = [
            Arg::Text(&new.token),
            Arg::Number(millis(term.stored_for())),
            Arg::Text(&old.token),
            Arg::Number(server.fences.server_clock.time_after(lifetime)),
        ];
        let sent = Clock::Boottime.now();
        new.sending(sent, term.stored_for(), live.number);
        new.leaves_a_trace();
        let given_up = || new.is_retired();
        let answer = live.run_unless(given_up, &self.script, &keys, &args, answer_by).await;
        // R9: an error of the script is an answer; the script will not run any more.
        if let Err(RedisOr::Redis(error)) = &answer
            && error.code().is_some()
        {
            new.answered(live.number);
        }
        let answer = answer.map_err(RedisOr::into_fault)?;
        let Value::Array(answer) = answer else { return Err(live.desynchronized()) };
        // R3: an answer that carries another token drops the connection.
        match answer.get(1) {
            Some(Value::BulkString(token)) if *token == new.token.as_bytes() => {}
            _ => return Err(live.desynchronized()),
        }
        new.answered(live.number);
        Ok((sent, answer))
    }
}
