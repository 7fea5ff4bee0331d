//! A lock and its expiry in two commands.

use crate::stage::{Error, LONG, Stage, Story};
use crate::victim::{self, EXPIRE, Victim};

pub(crate) const TITLE: &str = "SETNX, then EXPIRE";
pub(crate) const FLAW: &str = "\
A process that dies between the two commands leaves a lock without an expiry.";

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (b, key) = (stage.redis().await?, stage.key("expire"));
    let story = Story::default();
    Victim::start(victim::SETNX, &stage.url(), &key)?.kill()?;
    story.tell("A", "SETNX, and is killed (SIGKILL) before its EXPIRE");
    let taken: i64 = b.ask(&["SETNX", &key, "B"]).await?;
    let left: i64 = b.ask(&["PTTL", &key]).await?;
    story.tell("B", &format!("SETNX says {taken}, and PTTL says {left}: there is no expiry"));
    if taken == 0 && left == -1 {
        story.fails("locked for ever");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (b, key) = (stage.locks().await?, stage.key("expire"));
    let story = Story::default();
    Victim::start(victim::DISTLOCK, &stage.url(), &key)?.kill()?;
    story.tell("A", "takes the lock, which has an expiry from the start, and is killed (SIGKILL)");
    match b.lock(&*key).wait(LONG).acquire().await {
        Ok(_guard) => {
            let ttl = EXPIRE.as_secs();
            story.enters("B", &format!("waits for the rest of A's ttl of {ttl} s, has the lock"));
        }
        Err(_) => story.fails("locked for ever"),
    }
    Ok(story)
}
