//! The functions and tables of distlock. A manager creates them in a database that lacks them.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::error::PostgresError;

/// The schema, as SQL. It may also be executed by hand, any number of times.
pub const SCHEMA: &str = include_str!("schema.sql");

/// The version of the schema, which `distlock.version()` returns.
const VERSION: i32 = 6;
/// One process at a time creates the schema, because `CREATE … IF NOT EXISTS` fails if two do so at once.
const EXCLUSIVE: &str = "SELECT pg_advisory_xact_lock(7233187398472430596)";

/// Creates the schema in one transaction, unless it exists.
pub(crate) async fn ensure(client: &Client) -> Result<(), PostgresError> {
    if exists(client).await? {
        return Ok(());
    }
    let made = client.batch_execute(&format!("BEGIN; {EXCLUSIVE}; {SCHEMA} COMMIT")).await;
    let Err(error) = made else { return Ok(()) };
    let _ = client.batch_execute("ROLLBACK").await;
    let refused = PostgresError::of(&error);
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return Err(refused.and(
            ": the role may not make the schema `distlock`; run distlock-postgres/src/schema.sql as its owner",
        ));
    }
    Err(refused)
}

async fn exists(client: &Client) -> Result<bool, PostgresError> {
    match client.query_typed("SELECT distlock.version()", &[]).await {
        Ok(rows) => Ok(rows.first().is_some_and(|row| row.try_get(0).is_ok_and(is_new_enough))),
        Err(error) => match error.code() {
            Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION) => Ok(false),
            _ => Err(PostgresError::of(&error)),
        },
    }
}

/// Returns whether this or a newer release of distlock created the schema.
fn is_new_enough(version: i32) -> bool {
    version >= VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_schema() {
        assert!(SCHEMA.trim_end().ends_with(&format!("AS 'SELECT {VERSION}';")));
    }
}
