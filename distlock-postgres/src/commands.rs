//! The commands of a lock that is in use, prepared where that is possible.
//!
//! To parse and plan a call takes a server as long as to carry it out. But behind a pooler each transaction may be given
//! another connection, which knows nothing of what was prepared on the one before. Messages do not get through
//! there either, so they tell: what [listens](crate::listener) has heard its own echo.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

/// A function of the database.
pub(crate) struct Command {
    /// The call, as SQL.
    call: &'static str,
    /// The columns of the answer; empty for a single value.
    columns: &'static [&'static str],
    pub(crate) types: &'static [Type],
}

/// Settings that go along with a call if the session itself is not set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The call waits no longer than the lock timeout for locks of the server.
    Bounded,
    /// Like `Bounded`, and the call sends no messages.
    Quiet,
}

pub(crate) const ACQUIRE: Command = Command {
    call: "distlock.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    columns: &[],
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT8,
        Type::INT8,
        Type::INT4,
        Type::BOOL,
        Type::BOOL,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
    ],
};

pub(crate) const EXCHANGE: Command = Command {
    call: "distlock.downgrade($1, $2, $3, $4, $5, $6, $7, $8)",
    columns: &[],
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::INT4,
        Type::INT8,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::BOOL,
    ],
};

pub(crate) const RELEASE: Command = Command {
    call: "distlock.release($1, $2, $3, $4)",
    columns: &["state", "next"],
    types: &[Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL],
};

pub(crate) const RENEW: Command = Command {
    call: "distlock.renew($1, $2, $3, $4, $5)",
    columns: &["state", "fence"],
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::BOOL],
};

impl Command {
    fn plain(&self) -> String {
        match self.columns {
            [] => format!("SELECT {}", self.call),
            columns => format!("SELECT {} FROM {}", columns.join(", "), self.call),
        }
    }

    /// A single statement, because a pooler may give each statement to another connection. The settings end
    /// with it. They are in `FROM`, which is evaluated before the call.
    pub(crate) fn sql(&self, way: Way, lock_timeout: Duration) -> String {
        let bound = format!("set_config('lock_timeout', '{}', true)", lock_timeout.as_millis());
        let settings = match way {
            Way::Bounded => bound,
            Way::Quiet => format!("{bound}, set_config('distlock.quiet', 'on', true)"),
        };
        let settings = format!("(SELECT {settings} OFFSET 0) AS settings");
        match self.columns {
            [] => format!("SELECT {} FROM {settings}", self.call),
            columns => {
                let columns: Vec<_> =
                    columns.iter().map(|column| format!("(answer).{column}")).collect();
                let columns = columns.join(", ");
                // Without `OFFSET 0`, the server would make the call once for each column.
                format!(
                    "SELECT {columns} FROM (SELECT {} AS answer FROM {settings} OFFSET 0) AS a",
                    self.call
                )
            }
        }
    }
}

/// What was prepared on one connection.
pub(crate) struct Prepared(Vec<(&'static str, Statement)>);

impl Prepared {
    pub(crate) async fn on(client: &Client) -> Result<Self, Error> {
        let mut statements = Vec::new();
        for command in [ACQUIRE, RELEASE, RENEW] {
            let statement = client.prepare_typed(&command.plain(), command.types).await?;
            statements.push((command.call, statement));
        }
        Ok(Self(statements))
    }

    pub(crate) fn of(&self, command: &Command) -> Option<&Statement> {
        self.0.iter().find(|(call, _)| *call == command.call).map(|(_, statement)| statement)
    }
}
