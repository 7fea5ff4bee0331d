//! Whether the server may evict locks: it may when its memory is full, unless its
//! `maxmemory-policy` is `noeviction`.

use redis::aio::MultiplexedConnection;
use redis::cmd;

/// The policy by which the server evicts locks; `None` if it evicts nothing, or if this user may not
/// ask with `INFO`.
pub(crate) async fn policy(connection: &mut MultiplexedConnection) -> Option<String> {
    let info: String = cmd("INFO").arg("memory").query_async(connection).await.ok()?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let policy = field("maxmemory_policy")?;
    let evicts = field("maxmemory")? != "0" && policy != "noeviction";
    evicts.then(|| policy.to_owned())
}
