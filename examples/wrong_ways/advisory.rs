//! An advisory lock behind a pooler.

use distlock_testkit::PgBouncer;

use crate::stage::{Error, Stage, Story};

pub(crate) const TITLE: &str = "An advisory lock behind a pooler";
pub(crate) const FLAW: &str = "\
The lock belongs to a session of the database. A pooler in transaction mode, such as PgBouncer, gives the
session to the next client while the body runs; and with the session go its locks.";

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let pooler = PgBouncer::before(stage.postgres(), 1);
    let url = stage.postgres().url_at(pooler.addr());
    let (a, b) = (stage.sql_at(&url).await?, stage.sql_at(&url).await?);
    let (story, key) = (Story::default(), stage.key("advisory"));
    let lock = format!("SELECT pg_try_advisory_lock(hashtext('{key}'))");
    for (name, client) in [("A", a), ("B", b)] {
        match client.run(&lock).await?.as_deref() {
            Some("t") => story.enters(name, "pg_try_advisory_lock says true, has the lock"),
            _ => story.tell(name, "is told that the lock is held elsewhere"),
        }
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let pooler = PgBouncer::before(stage.postgres(), 1);
    let url = stage.postgres().url_at(pooler.addr());
    let (a, b) = (stage.locks_at(&url).await?, stage.locks_at(&url).await?);
    let (story, key) = (Story::default(), stage.key("advisory"));
    let body = async {
        story.enters("A", "has the lock, a row that names A");
        match b.lock(&*key).run(async { story.enters("B", "has the lock") }).await {
            Err(error) if error.is_busy() => {
                story.tell("B", "is told that the lock is held elsewhere");
                Ok(())
            }
            other => other,
        }
    };
    a.lock(&*key).run(body).await??;
    Ok(story)
}
