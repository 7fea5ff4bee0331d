//! A quorum of independent servers.

use std::thread::sleep;

use distlock_testkit::{Mode, Proxy, Quorum, RedisServer, SECOND, ms};

use super::{Deployment, TTL, broken};
use crate::effort::Dice;

pub(super) struct Nodes {
    quorum: Quorum,
    proxies: Vec<Proxy>,
}

impl Nodes {
    pub(super) fn start() -> Self {
        let quorum = Quorum::of(3);
        let proxies = quorum.nodes.iter().map(|node| Proxy::to(node.addr())).collect();
        // None of them counts before.
        sleep(TTL + 2 * SECOND);
        Self { quorum, proxies }
    }

    fn networks(&self, count: usize, dice: &mut Dice) {
        let first = dice.below(3) as usize;
        for at in first..first + count {
            broken(&self.proxies[at % 3], dice);
        }
        sleep(ms(dice.below(1500)));
        self.proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
    }
}

impl Deployment for Nodes {
    fn url(&self) -> String {
        let guard = format!("guard={}s", TTL.as_secs());
        Quorum::url_over(self.proxies.iter().map(Proxy::addr), &guard)
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn fault(&mut self, dice: &mut Dice) -> &'static str {
        let at = dice.below(3) as usize;
        match dice.below(6) {
            0 => {
                self.quorum.nodes[at].restart_empty();
                "a server restarts without its data"
            }
            1 => {
                self.quorum.nodes[at].kill9();
                sleep(ms(dice.below(2000)));
                self.quorum.nodes[at].restart_empty();
                "a server is down for a while, and comes back without its data"
            }
            2 => {
                self.quorum.nodes[at].stop();
                sleep(ms(dice.below(2500)));
                self.quorum.nodes[at].cont();
                "a server stands still"
            }
            3 => {
                let two = [at, (at + 1) % 3];
                two.iter().for_each(|at| self.quorum.nodes[*at].stop());
                sleep(ms(dice.below(2500)));
                two.iter().for_each(|at| self.quorum.nodes[*at].cont());
                "two servers stand still"
            }
            4 => {
                self.networks(1, dice);
                "the network of a server"
            }
            _ => {
                self.networks(2, dice);
                "the network of two servers"
            }
        }
    }

    fn left(&self) -> Vec<String> {
        self.quorum.nodes.iter().flat_map(RedisServer::lock_keys).collect()
    }
}
