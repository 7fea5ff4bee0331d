//! The functions and tables, which a manager makes where they are missing.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::error::{Fault, Kind};

/// What is stored, as SQL that may be run by hand, any number of times.
pub const SCHEMA: &str = include_str!("schema.sql");

/// What `distlock.version()` answers where it is that of this text.
const VERSION: i32 = 6;
/// One process at a time makes them: `CREATE … IF NOT EXISTS` alone fails if two do so together.
const TURN: &str = "SELECT pg_advisory_xact_lock(7233187398472430596)";

/// Makes them unless they are there, in one transaction.
pub(crate) async fn ensure(client: &Client) -> Result<(), Fault> {
    if is_there(client).await? {
        return Ok(());
    }
    let made = client.batch_execute(&format!("BEGIN; {TURN}; {SCHEMA} COMMIT")).await;
    let Err(error) = made else { return Ok(()) };
    let _ = client.batch_execute("ROLLBACK").await;
    let fault = Fault::of(&error);
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        let words = format!(
            "{}: the role may not make the schema `distlock`; run distlock-postgres/src/schema.sql as its owner",
            fault.words
        );
        return Err(Fault { kind: Kind::Refused, words, ..fault });
    }
    Err(fault)
}

async fn is_there(client: &Client) -> Result<bool, Fault> {
    match client.query_typed("SELECT distlock.version()", &[]).await {
        Ok(rows) => Ok(rows.first().is_some_and(|row| row.try_get(0).is_ok_and(is_new_enough))),
        Err(error) => match error.code() {
            Some(&SqlState::INVALID_SCHEMA_NAME | &SqlState::UNDEFINED_FUNCTION) => Ok(false),
            _ => Err(Fault::of(&error)),
        },
    }
}

/// A newer process may have been here.
fn is_new_enough(version: i32) -> bool {
    version >= VERSION
}
