//! A row that is locked by a transaction, around more than that transaction.

use crate::stage::{Error, LONG, Stage, Story};

pub(crate) const TITLE: &str = "SELECT … FOR UPDATE around more than its transaction";
pub(crate) const FLAW: &str = "\
The row is locked as long as the transaction is open, and the body does something else meanwhile: it
calls another service. If the connection ends, the row is free, and the body does not learn of it.";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY)";

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b) = (stage.sql().await?, stage.sql().await?);
    let (story, key) = (Story::default(), stage.key("for-update"));
    a.run(TABLE).await?;
    a.run(&format!("INSERT INTO orders VALUES ('{key}') ON CONFLICT DO NOTHING")).await?;
    let select = format!("SELECT id FROM orders WHERE id = '{key}' FOR UPDATE");
    a.run("BEGIN").await?;
    a.run(&select).await?;
    story.enters("A", "BEGIN, SELECT … FOR UPDATE, has the lock");
    let own = a.run("SELECT pg_backend_pid()").await?.ok_or("no number")?;
    stage.postgres().sql(&format!("SELECT pg_terminate_backend({own})"));
    story.tell("A", "calls another service; the server ends its connection, as in a failover");
    b.run("BEGIN").await?;
    b.run(&select).await?;
    story.enters("B", "BEGIN, SELECT … FOR UPDATE, has the lock");
    b.run("COMMIT").await?;
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let url = stage.postgres().url();
    let (a, b) = (stage.locks_at(&url).await?, stage.locks_at(&url).await?);
    let (story, key) = (Story::default(), stage.key("for-update"));
    let body = async {
        story.enters("A", "has the lock");
        stage.postgres().sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'distlock' AND pid <> pg_backend_pid()",
        );
        story.tell("A", "calls another service; the server ends its connections, not its lease");
        // It may find its own connection ended, and makes another.
        loop {
            match b.lock(&*key).run(async { story.enters("B", "has the lock") }).await {
                Err(error) if error.is_busy() => {
                    story.tell("B", "is told that the lock is held elsewhere");
                    return Ok(());
                }
                Err(distlock::LockError::Backend { .. }) => {}
                other => return other.map_err(Error::from),
            }
        }
    };
    a.lock(&*key).ttl(LONG).run(body).await??;
    Ok(story)
}
