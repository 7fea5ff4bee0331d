//! The commands of a lock that is in use, prepared where that is possible.
//!
//! To parse and plan a call takes a server as long as to carry it out. But behind a pooler each transaction may be given
//! another connection, which knows nothing of what was prepared on the one before. Messages do not get through
//! there either, so they tell: what [listens](crate::listener) has heard its own echo.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Statement};

/// A statement with the types of its parameters.
pub(crate) struct Command {
    pub(crate) sql: &'static str,
    pub(crate) types: &'static [Type],
}

pub(crate) const ACQUIRE: Command = Command {
    sql: "SELECT distlock.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
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

pub(crate) const RELEASE: Command = Command {
    sql: "SELECT state, next FROM distlock.release($1, $2, $3, $4)",
    types: &[Type::TEXT, Type::TEXT, Type::INT8, Type::BOOL],
};

pub(crate) const RENEW: Command = Command {
    sql: "SELECT state, fence FROM distlock.renew($1, $2, $3, $4, $5)",
    types: &[Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY, Type::BOOL_ARRAY, Type::BOOL],
};

/// What was prepared on one connection.
pub(crate) struct Prepared(Vec<(&'static str, Statement)>);

impl Prepared {
    pub(crate) async fn on(client: &Client) -> Result<Self, Error> {
        let mut statements = Vec::new();
        for Command { sql, types } in [ACQUIRE, RELEASE, RENEW] {
            statements.push((sql, client.prepare_typed(sql, types).await?));
        }
        Ok(Self(statements))
    }

    pub(crate) fn of(&self, command: &Command) -> Option<&Statement> {
        self.0.iter().find(|(sql, _)| *sql == command.sql).map(|(_, statement)| statement)
    }
}
