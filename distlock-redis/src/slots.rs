//! Slots of a Redis Cluster: the slot of a name, a short tag for each slot, and the node that has it.

use std::sync::LazyLock;

use redis::Value;

use crate::addr::{Addr, UNKNOWN_HOST};

/// The number of slots of a cluster.
pub(crate) const SLOTS: usize = 16_384;

/// A slot, the part of a cluster that a name belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(u16);

impl Slot {
    /// Returns the slot of a name, or of its hash tag if it has one.
    pub(crate) fn of(name: &str) -> Self {
        let name = name.as_bytes();
        let tag = name.iter().position(|byte| *byte == b'{').and_then(|open| {
            let rest = &name[open + 1..];
            let tag = &rest[..rest.iter().position(|byte| *byte == b'}')?];
            (!tag.is_empty()).then_some(tag)
        });
        Self::new(crc16(tag.unwrap_or(name)))
    }

    fn new(hash: u16) -> Self {
        Self(hash % SLOTS as u16)
    }

    /// Returns the slot with this number, if there is one.
    pub(crate) fn numbered(number: u16) -> Option<Self> {
        (usize::from(number) < SLOTS).then_some(Self(number))
    }

    pub(crate) fn number(self) -> usize {
        self.0.into()
    }

    /// Returns a short text that hashes to this slot, for names that belong to the slot and to no lock. It is always
    /// the same text, of at most five characters.
    pub(crate) fn tag(self) -> String {
        format!("{:x}", TAGS[self.number()])
    }
}

/// For each slot the smallest number whose hexadecimal digits hash to it.
static TAGS: LazyLock<Box<[u32; SLOTS]>> = LazyLock::new(|| {
    let mut tags = Box::new([u32::MAX; SLOTS]);
    let mut left = SLOTS;
    for number in 0.. {
        let tag = &mut tags[Slot::new(crc16_of_hex(number)).number()];
        if *tag == u32::MAX {
            *tag = number;
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    tags
});

/// Computes the CRC16 that Redis uses: XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| step(crc, *byte))
}

/// Computes the CRC16 of the hexadecimal digits of a number.
fn crc16_of_hex(number: u32) -> u16 {
    let digits = (32 - number.leading_zeros()).div_ceil(4).max(1);
    (0..digits).rev().fold(0, |crc, digit| {
        let digit = (number >> (4 * digit)) as usize & 15;
        step(crc, b"0123456789abcdef"[digit])
    })
}

fn step(crc: u16, byte: u8) -> u16 {
    crc << 8 ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)]
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The owner of a slot that no node has.
const NO_NODE: u16 = u16::MAX;

/// The primary of each slot, as a node has reported it.
#[derive(Debug, Clone)]
pub(crate) struct SlotMap {
    /// For each slot the index of its owner in `nodes`.
    owners: Box<[u16; SLOTS]>,
    nodes: Vec<Addr>,
}

impl SlotMap {
    /// Makes a map in which no node has a slot.
    pub(crate) fn empty() -> Self {
        Self { owners: Box::new([NO_NODE; SLOTS]), nodes: Vec::new() }
    }

    /// Reads the reply to `CLUSTER SLOTS` of the node at `by`; `None` if it has another form.
    pub(crate) fn parse(answer: &Value, by: &Addr) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut map = Self::empty();
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = range.as_slice()
            else {
                return None;
            };
            let slots = usize::try_from(*from).ok().zip(usize::try_from(*to).ok());
            let (from, to) = slots.filter(|(_, to)| *to < SLOTS)?;
            if let Some(addr) = addr(primary, by) {
                let owner = map.index(addr);
                map.owners[from..=to].fill(owner);
            }
        }
        Some(map)
    }

    /// Returns the primary that has a slot.
    pub(crate) fn owner(&self, slot: Slot) -> Option<&Addr> {
        self.nodes.get(usize::from(self.owners[slot.number()]))
    }

    /// Notes that the node at `to` has a slot.
    pub(crate) fn moved(&mut self, slot: Slot, to: Addr) {
        let owner = self.index(to);
        self.owners[slot.number()] = owner;
    }

    /// Notes that there is a node at an address.
    pub(crate) fn add_node(&mut self, node: Addr) {
        self.index(node);
    }

    /// Returns all nodes.
    pub(crate) fn nodes(&self) -> &[Addr] {
        &self.nodes
    }

    fn index(&mut self, addr: Addr) -> u16 {
        let at = self.nodes.iter().position(|known| *known == addr).unwrap_or_else(|| {
            self.nodes.push(addr);
            self.nodes.len() - 1
        });
        u16::try_from(at).unwrap_or(NO_NODE)
    }
}

/// Reads the address of a node from `CLUSTER SLOTS`: its host, port, id and other details. If the host is missing, it
/// is the host of the node that replied. If the node's name is unknown, its IP address is used.
fn addr(node: &[Value], by: &Addr) -> Option<Addr> {
    let host = match node.first()? {
        Value::Nil => String::new(),
        host => text(host)?,
    };
    let Value::Int(port) = node.get(1)? else { return None };
    let host = match host.as_str() {
        "" => by.host.clone(),
        UNKNOWN_HOST => node.get(3).and_then(ip)?.into(),
        host => host.into(),
    };
    let port = match u16::try_from(*port).ok()? {
        0 => by.port,
        port => port,
    };
    Some(Addr { host, port })
}

/// Finds the IP address in the details of a node.
fn ip(known: &Value) -> Option<String> {
    match known {
        Value::Array(words) => {
            let at = words.iter().position(|word| text(word).as_deref() == Some("ip"))?;
            text(words.get(at + 1)?)
        }
        Value::Map(pairs) => {
            let ip = pairs.iter().find(|(name, _)| text(name).as_deref() == Some("ip"))?;
            text(&ip.1)
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(from: i64, to: i64, host: Value, port: i64) -> Value {
        let node = Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])]);
        Value::Array(vec![Value::Int(from), Value::Int(to), node])
    }

    fn at(host: &str, port: u16) -> Addr {
        Addr { host: host.into(), port }
    }

    /// The expected slots are the servers' replies to `CLUSTER KEYSLOT`.
    #[test]
    fn names_hash_as_servers_hash_them() {
        for (name, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}.bar", 12_182),
            ("distlock:lock:{foo}", 12_182),
            ("a{}b{foo}", 976),
            ("{}order", 14_856),
            ("distlock:lock::{order}:1", 16_025),
            ("{order}", 16_025),
            ("ä", 13_929),
        ] {
            assert_eq!(Slot::of(name).number(), slot, "{name}");
        }
    }

    #[test]
    fn each_slot_has_a_short_tag() {
        for number in 0..SLOTS as u16 {
            let slot = Slot::numbered(number).expect("a slot");
            let tag = slot.tag();
            assert!(tag.len() <= 5, "{tag}");
            assert_eq!(Slot::of(&tag), slot);
            assert_eq!(Slot::of(&format!("distlock:fence:{{{tag}}}")), slot);
        }
        assert_eq!(Slot::numbered(SLOTS as u16), None);
    }

    #[test]
    fn a_map_is_read_as_the_node_means_it() {
        let by = at("seed", 7000);
        let known = Value::Array(vec![bulk("ip"), bulk("10.0.0.9")]);
        let unnamed = vec![bulk("?"), Value::Int(7005), bulk("id"), known];
        let unnamed = Value::Array(vec![Value::Int(60), Value::Int(60), Value::Array(unnamed)]);
        let answer = Value::Array(vec![
            range(0, 9, bulk("10.0.0.1"), 7001),
            range(10, 19, Value::Nil, 7002),
            range(20, 29, bulk(""), 7003),
            range(30, 39, bulk("?"), 7004),
            range(40, 49, bulk("10.0.0.1"), 7001),
            range(50, 59, bulk("::1"), 0),
            unnamed,
        ]);
        let mut map = SlotMap::parse(&answer, &by).expect("a map");
        let owner = |map: &SlotMap, slot| map.owner(Slot(slot)).cloned();
        assert_eq!(owner(&map, 0), Some(at("10.0.0.1", 7001)));
        assert_eq!(owner(&map, 49), owner(&map, 0));
        assert_eq!(owner(&map, 19), Some(at("seed", 7002)));
        assert_eq!(owner(&map, 20), Some(at("seed", 7003)));
        assert_eq!(owner(&map, 30), None, "a host without a name or an address");
        assert_eq!(owner(&map, 50), Some(at("::1", 7000)));
        assert_eq!(owner(&map, 60), Some(at("10.0.0.9", 7005)));
        assert_eq!(owner(&map, 16_383), None);
        assert_eq!(map.nodes().len(), 5);
        map.moved(Slot(16_383), at("10.0.0.2", 1));
        assert_eq!(owner(&map, 16_383), Some(at("10.0.0.2", 1)));
    }

    #[test]
    fn what_is_no_map_is_an_error() {
        let by = at("seed", 7000);
        for answer in [
            Value::Okay,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, SLOTS as i64, bulk("h"), 1)]),
            Value::Array(vec![range(-1, 1, bulk("h"), 1)]),
        ] {
            assert!(SlotMap::parse(&answer, &by).is_none(), "{answer:?}");
        }
    }
}
