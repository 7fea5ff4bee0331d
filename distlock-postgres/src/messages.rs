//! What processes say to each other, and of themselves.

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::Fault;
use crate::request::Record;
use crate::session::{Live, Param, check, millis};

impl Live {
    /// Sends the process of a token a message about a lock.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn tell(&self, kind: &str, token: &str, name: &str) -> Result<(), Fault> {
        check(name)?;
        let params: [Param<'_>; 3] =
            [(&kind, Type::TEXT), (&token, Type::TEXT), (&name, Type::TEXT)];
        self.run("SELECT distlock.tell($1, $2, $3)", &params).await.map(|_| ())
    }

    /// Tells the token in front of a waiter that it is waited for.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn announce(&self, name: &str, token: &str) -> Result<(), Fault> {
        let params: [Param<'_>; 2] = [(&name, Type::TEXT), (&token, Type::TEXT)];
        self.run("SELECT distlock.announce($1, $2)", &params).await.map(|_| ())
    }

    /// Sends texts to processes; says of each whether that one listens. One that is too long is not sent.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn send(&self, letters: &[(&str, String)]) -> Result<Vec<bool>, Fault> {
        let processes: Vec<_> = letters.iter().map(|(process, _)| *process).collect();
        let texts: Vec<_> = letters.iter().map(|(_, text)| text.as_str()).collect();
        let params: [Param<'_>; 2] = [(&processes, Type::TEXT_ARRAY), (&texts, Type::TEXT_ARRAY)];
        let rows = self.run("SELECT distlock.send($1, $2)", &params).await?;
        let row = rows.first().ok_or_else(Fault::unexpected)?;
        row.try_get(0).map_err(|_| Fault::unexpected())
    }

    /// Keeps what a process says of itself for so long.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn introduce(&self, record: &Record<'_>, kept: Duration) -> Result<(), Fault> {
        let kept = millis(kept);
        let params: [Param<'_>; 4] = [
            (&record.prefix, Type::TEXT),
            (&record.process, Type::TEXT),
            (&record.text, Type::TEXT),
            (&kept, Type::INT8),
        ];
        self.run("SELECT distlock.introduce($1, $2, $3, $4)", &params).await.map(|_| ())
    }

    /// Forgets what a process has said of itself.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn take_leave(&self, prefix: &str, process: &str) -> Result<(), Fault> {
        let params: [Param<'_>; 2] = [(&prefix, Type::TEXT), (&process, Type::TEXT)];
        self.run("SELECT distlock.take_leave($1, $2)", &params).await.map(|_| ())
    }

    /// What processes say of themselves under a prefix, by process: all, or these.
    ///
    /// # Errors
    ///
    /// Where the server could not be asked.
    pub async fn records(
        &self,
        prefix: &str,
        processes: Option<&[String]>,
    ) -> Result<HashMap<String, String>, Fault> {
        let params: [Param<'_>; 2] = [(&prefix, Type::TEXT), (&processes, Type::TEXT_ARRAY)];
        const SQL: &str = "SELECT process, record FROM distlock.records($1, $2)";
        let rows = self.run(SQL, &params).await?;
        let field = |row: &Row, at| row.try_get(at).map_err(|_| Fault::unexpected());
        rows.iter().map(|row| Ok((field(row, 0)?, field(row, 1)?))).collect()
    }
}
