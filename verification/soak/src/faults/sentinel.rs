//! A primary and a replica, and sentinels that let one follow the other; with or without the replica's word for
//! every lock.

use std::thread::sleep;

use distlock_testkit::{Mode, Sentinels, ms};

use super::{Deployment, broken};
use crate::effort::Dice;

pub(super) struct Watched {
    all: Sentinels,
    primary: usize,
    /// The replica confirms what is granted and renewed.
    confirmed: bool,
}

impl Watched {
    pub(super) fn start(confirmed: bool) -> Self {
        Self { all: Sentinels::builder(3).proxied().start(), primary: 0, confirmed }
    }

    fn followed(&mut self) -> usize {
        let old = self.primary;
        self.primary = self.all.wait_for_another(0, old);
        old
    }
}

impl Deployment for Watched {
    fn url(&self) -> String {
        let url = self.all.url();
        if self.confirmed { format!("{url}?replicas=1&replica_timeout=200ms") } else { url }
    }

    fn is_strict(&self) -> bool {
        self.confirmed
    }

    fn fault(&mut self, dice: &mut Dice) -> &'static str {
        let replica = 1 - self.primary;
        let what = match dice.below(6) {
            0 => {
                self.all.server_mut(self.primary).kill9();
                let old = self.followed();
                self.all.rejoin(old, self.primary);
                "the primary is killed"
            }
            1 => {
                self.all.server(self.primary).stop();
                let old = self.followed();
                sleep(ms(dice.below(1500)));
                self.all.server(old).cont();
                "the primary stands still, is followed, and goes on"
            }
            2 => {
                self.all.server(self.primary).stop();
                sleep(ms(dice.below(600)));
                self.all.server(self.primary).cont();
                "the primary stands still for a moment"
            }
            3 => {
                self.all.server_mut(replica).kill9();
                sleep(ms(dice.below(1000)));
                self.all.rejoin(replica, self.primary);
                "the replica restarts"
            }
            4 => {
                let sentinel = dice.below(3) as usize;
                self.all.sentinel(sentinel).stop();
                sleep(ms(dice.below(2000)));
                self.all.sentinel(sentinel).cont();
                "a sentinel stands still"
            }
            _ => {
                // For less than makes sentinels act.
                broken(self.all.proxy(self.primary), dice);
                sleep(ms(dice.below(600)));
                self.all.proxy(self.primary).set(Mode::Pass);
                "the network of the primary"
            }
        };
        // A busy machine may have made them act all the same.
        self.primary = self.all.settled();
        what
    }

    fn left(&self) -> Vec<String> {
        self.all.server(self.primary).lock_keys()
    }
}
