//! Checks that answers belong to the command that waits for them (R3), by the marks that come back with them.

use distlock_core::clock::{Clock, Moment};
use distlock_core::store::Fault;
use redis::{Cmd, Pipeline, RedisError, Value};

use crate::connection::connection::{Connection, Live};
use crate::connection::error::{fault, is_denied};

#[inline]
pub(crate) fn echo(mark: &str) -> Cmd {
    let mut echo = Cmd::with_capacity(2, mark.len() + 4);
    echo.arg("ECHO").arg(mark);
    echo
}

/// The two answers of a try without the `ECHO` behind them, if that has this mark.
#[inline]
pub(crate) fn of_mark<'a>(
    (mark, sent): (&str, Moment),
    answers: &'a [Value],
    live: &Live,
) -> Result<&'a [Value], Fault> {
    let Some((echoed, both)) = answers.split_last() else {
        return Err(live.desynchronized());
    };
    is_echo(mark, echoed, both, live)?;
    live.marks.came_back(sent);
    Ok(both)
}

/// Sees to it that these are the answers to a try that was alone when it was sent.
pub(crate) async fn of_alone(
    before: u32,
    mark: &str,
    answers: &[Value],
    live: &mut Connection,
    answer_by: Moment,
) -> Result<(), Fault> {
    if live.was_overtaken(before) {
        Box::pin(ask_whose(mark, answers, live, answer_by)).await?;
    }
    live.marks.are_known();
    Ok(())
}

/// Something was sent behind: perhaps these answers are not its own. As many `ECHO`s are sent as it
/// has answers. If those were lost, the last of what was sent between gets all that it waits for, and
/// so notices as well.
async fn ask_whose(
    mark: &str,
    answers: &[Value],
    live: &mut Connection,
    answer_by: Moment,
) -> Result<(), Fault> {
    let mut pipeline = Pipeline::with_capacity(answers.len());
    for _ in answers {
        pipeline.add_command(echo(mark));
    }
    let now = Clock::Boottime.now();
    live.marks.was_shared(now);
    let said = live.said.take();
    let echoes = live.pipeline(&pipeline, now, answer_by).await?;
    live.said = said;
    echoes.iter().try_for_each(|echoed| is_echo(mark, echoed, answers, live))
}

#[inline]
fn is_echo(mark: &str, echoed: &Value, answers: &[Value], live: &Live) -> Result<(), Fault> {
    match (echoed, answers) {
        (Value::BulkString(echoed), _) if echoed == mark.as_bytes() => Ok(()),
        // The server refuses all of them: it is busy, or loads its data.
        (Value::ServerError(_), [.., Value::ServerError(_), _]) => Ok(()),
        (Value::ServerError(error), [.., Value::Int(_)]) => {
            let error = RedisError::from(error.clone());
            if !is_denied(&error) {
                return Err(fault(&error));
            }
            live.marks.deny();
            Ok(())
        }
        _ => Err(live.desynchronized()),
    }
}
