//! A row with a unique key, in a database.

use crate::stage::{Error, LONG, Stage, Story};
use crate::victim::{self, Victim};

pub(crate) const TITLE: &str = "A row with a unique key";
pub(crate) const FLAW: &str = "\
INSERT is the lock and DELETE frees it, in a table of a database. The row of a process that died stays.";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lock (key text PRIMARY KEY)";

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (a, b) = (stage.sql().await?, stage.sql().await?);
    let (story, key) = (Story::default(), stage.key("row"));
    a.run(TABLE).await?;
    let insert = format!("INSERT INTO lock VALUES ('{key}') ON CONFLICT DO NOTHING RETURNING key");
    if a.run(&insert).await?.is_some() {
        story.tell("A", "INSERT, and dies before its DELETE");
    }
    drop(a);
    if b.run(&insert).await?.is_none() {
        story.tell(
            "B",
            "INSERT says that the row is there; nothing says whose it is, or since when",
        );
        story.fails("locked for ever");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (story, key) = (Story::default(), stage.key("row"));
    let url = stage.postgres().url();
    let b = stage.locks_at(&url).await?;
    let a = Victim::start(victim::DISTLOCK, &url, &key)?;
    a.kill()?;
    story.tell("A", "takes the lock, whose row has an end from the start, and is killed (SIGKILL)");
    let body = async { story.enters("B", "waits for the rest of A's ttl of 1 s, has the lock") };
    b.lock(&*key).wait(LONG).run(body).await?;
    Ok(story)
}
