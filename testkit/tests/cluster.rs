//! A cluster serves all slots, moves them and fails over.

use distlock_testkit::{Cluster, Mode, wait_until};

#[test]
fn a_slot_moves_with_its_keys_and_a_shard_fails_over() {
    let mut cluster = Cluster::builder(3).replicas(1).proxied().start();
    let key = cluster.key_at(0);
    let slot = cluster.slot(&key);
    assert_eq!(cluster.primary_of(slot), 0);
    cluster.cli::<()>(0, &["SET", &key, "one"]);

    cluster.open_move(slot, 1);
    let other = format!("{{{key}}}:other");
    let asked = cluster.try_cli::<()>(0, &["GET", &other]).expect_err("it is on its way");
    assert_eq!(asked.code(), Some("ASK"));
    let both = cluster.try_cli::<()>(0, &["MGET", &key, &other]).expect_err("half of it");
    assert_eq!(both.code(), Some("TRYAGAIN"));
    cluster.move_keys(slot, 0, 1);
    assert!(cluster.close_move(slot, 0, 1));
    assert_eq!(cluster.cli::<String>(1, &["GET", &key]), "one");
    let moved = cluster.try_cli::<()>(0, &["GET", &key]).expect_err("it is gone");
    let (to, _) = moved.redirect_node().expect("a redirect");
    assert_eq!(to, cluster.addr(1).to_string(), "the proxy's address");
    cluster.migrate(slot, 0);
    assert_eq!(cluster.cli::<String>(0, &["GET", &key]), "one");

    cluster.fail_over(3);
    assert!(!cluster.is_primary(0));
    cluster.kill9(3);
    wait_until("the other one takes over", || cluster.is_primary(0));
    cluster.restart(3);
    cluster.wait_until_whole();
    cluster.proxy(1).set(Mode::Reset);
}
