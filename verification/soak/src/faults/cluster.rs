//! A cluster of three shards, each with a replica.

use std::thread::sleep;

use distlock_testkit::{Cluster, Mode, ms, wait_until};

use super::{Deployment, KEYS, broken};
use crate::effort::Dice;

const SHARDS: usize = 3;

pub(super) struct Shards {
    cluster: Cluster,
    keys: Vec<String>,
}

impl Shards {
    pub(super) fn start() -> Self {
        let cluster = Cluster::builder(SHARDS).replicas(1).proxied().start();
        let keys = (0..KEYS as usize).map(|n| cluster.key_at(n % SHARDS)).collect();
        Self { cluster, keys }
    }

    fn slot(&self, dice: &mut Dice) -> u16 {
        self.cluster.slot(&self.keys[dice.below(KEYS) as usize])
    }

    /// The primary of some lock.
    fn primary(&self, dice: &mut Dice) -> usize {
        self.cluster.primary_of(self.slot(dice))
    }

    /// The replica of a primary: the first nodes are primaries at first, the others their replicas in order.
    fn other(primary: usize) -> usize {
        (primary + SHARDS) % (2 * SHARDS)
    }
}

impl Deployment for Shards {
    fn url(&self) -> String {
        self.cluster.url()
    }

    fn is_strict(&self) -> bool {
        false
    }

    fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }

    fn fault(&mut self, dice: &mut Dice) -> &'static str {
        let primary = self.primary(dice);
        let replica = Self::other(primary);
        let what = match dice.below(6) {
            0 => {
                self.cluster.kill9(primary);
                wait_until("its replica is a primary", || self.cluster.is_primary(replica));
                self.cluster.restart(primary);
                "a primary is killed"
            }
            1 => {
                self.cluster.stop(primary);
                wait_until("its replica is a primary", || self.cluster.is_primary(replica));
                sleep(ms(dice.below(1500)));
                self.cluster.cont(primary);
                "a primary stands still, is followed, and goes on"
            }
            2 => {
                self.cluster.stop(primary);
                sleep(ms(dice.below(600)));
                self.cluster.cont(primary);
                "a primary stands still for a moment"
            }
            3 => {
                self.cluster.fail_over(replica);
                "a replica takes over"
            }
            4 => {
                let slot = self.slot(dice);
                let to = self.primary(dice);
                self.cluster.migrate(slot, to);
                "a slot moves"
            }
            _ => {
                broken(self.cluster.proxy(primary), dice);
                sleep(ms(dice.below(1500)));
                self.cluster.proxy(primary).set(Mode::Pass);
                "the network of a primary"
            }
        };
        self.cluster.wait_until_whole();
        what
    }

    fn left(&self) -> Vec<String> {
        self.cluster.lock_keys()
    }
}
