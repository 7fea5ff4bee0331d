//! A lock that is compared before it is deleted, with a value that several have.

use crate::del::late_release;
use crate::stage::{Error, LONG, Redis, SHORT, Stage, Story};

pub(crate) const TITLE: &str = "One value for a whole process";
pub(crate) const FLAW: &str = "\
The value is compared before the lock is deleted, but it names the process (host, pod, a constant)
and not the lease. Two tasks of the process have the same one.";

const DELETE_IF_EQUAL: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

async fn unlock(redis: &Redis, key: &str, value: &str) -> Result<bool, Error> {
    redis.ask(&["EVAL", DELETE_IF_EQUAL, "1", key, value]).await
}

pub(crate) async fn wrong(stage: &Stage) -> Result<Story, Error> {
    let (pod, other, key) = (stage.redis().await?, stage.redis().await?, stage.key("value"));
    let story = Story::default();
    if pod.set_nx(&key, "pod-7", SHORT).await? {
        story.enters("A", "(a task of pod-7) SET NX PX pod-7, has the lock");
    }
    pod.expired(&key).await;
    story.leaves("A");
    story.tell("A", "is paused at its last line until its lock has expired");
    if pod.set_nx(&key, "pod-7", LONG).await? {
        story.enters("B", "(another task of pod-7) SET NX PX pod-7, has the lock");
    }
    if unlock(&pod, &key, "pod-7").await? {
        story.tell("A", "goes on: the value is pod-7, as it should be, and B's lock is deleted");
    }
    if other.set_nx(&key, "pod-8", LONG).await? {
        story.enters("C", "(of pod-8) SET NX PX pod-8, has the lock");
    }
    Ok(story)
}

pub(crate) async fn distlock(stage: &Stage) -> Result<Story, Error> {
    let (pod, other, key) = (stage.locks().await?, stage.locks().await?, stage.key("value"));
    let story = Story::default();
    // A and B are tasks of one process, with one manager.
    late_release(&story, &key, [&pod, &pod, &other]).await?;
    Ok(story)
}
