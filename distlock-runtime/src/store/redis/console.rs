//! Commands that are no part of the protocol, for tools.

use redis::{Cmd, RedisError, Value};

use super::connection::Connection;
use super::error::words;
use crate::clock::{Clock, Moment};
use crate::store::Fault;
use crate::store::console::{StoreCommand, StoreReply};

/// Sends them in one write.
pub(super) async fn ask(
    live: &mut Connection,
    commands: &[StoreCommand],
    answer_by: Moment,
) -> Result<Vec<StoreReply>, Fault> {
    let mut pipeline = redis::Pipeline::with_capacity(commands.len());
    for words in commands {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word.as_slice());
        }
        pipeline.add_command(command);
    }
    let answers = live.pipeline(&pipeline, Clock::Boottime.now(), answer_by).await?;
    Ok(answers.into_iter().map(reply).collect())
}

fn reply(value: Value) -> StoreReply {
    let list = |values: Vec<Value>| StoreReply::List(values.into_iter().map(reply).collect());
    match value {
        Value::Nil => StoreReply::Nil,
        Value::Int(number) => StoreReply::Number(number),
        Value::BulkString(text) => StoreReply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            StoreReply::Text(text.into_bytes())
        }
        Value::Okay => StoreReply::Text(b"OK".to_vec()),
        Value::Array(values) | Value::Set(values) => list(values),
        Value::Map(pairs) => {
            list(pairs.into_iter().flat_map(|(key, value)| [key, value]).collect())
        }
        Value::Attribute { data, .. } => reply(*data),
        Value::Double(number) => StoreReply::Text(number.to_string().into_bytes()),
        Value::Boolean(yes) => StoreReply::Number(i64::from(yes)),
        Value::ServerError(error) => StoreReply::Error(words(&RedisError::from(error))),
        _ => StoreReply::Nil,
    }
}
