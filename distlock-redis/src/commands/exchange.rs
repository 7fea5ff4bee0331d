//! The exchange of a token that has the lock alone for one that holds it with others, in one script: in
//! between no token can get the lock that would keep the new one out.

use crate::commands::run_script::{Grant, Outcome};
use crate::connection::live::Connection;
use crate::script::{Arg, Script, Wakes};
use crate::server::Server;
use distlock_core::clock::Moment;
use distlock_core::clock::millis;
use distlock_core::store::{Exchange, Exchanged, Fault};

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
        live: &mut Connection,
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
        let grant = Grant {
            owner: new,
            term: *term,
            script: &self.script,
            args: &mut args[..4 + usize::from(tag.is_some())],
            not_after: 3,
            // The old token holds the lock: the new one may have it whatever is answered to this run.
            stays: true,
        };
        Ok(match grant.run(server, live, |_| Some(()), answer_by).await? {
            Outcome::Granted { fence, sent, contended } => {
                Exchanged::Granted { fence, sent, contended }
            }
            Outcome::Refused(()) => Exchanged::NotHeld,
        })
    }
}
