//! The encoding of Protocol Buffers, as much of it as etcd's messages need.

/// A message as it is written.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A number, also if it is 0, which says which one of several fields it is.
    pub(crate) fn exact(&mut self, field: u32, number: i64) {
        self.varint(u64::from(field) << 3);
        self.varint(number as u64);
    }

    /// A number; 0 is what a field has that is not there.
    pub(crate) fn number(&mut self, field: u32, number: i64) {
        if number != 0 {
            self.exact(field, number);
        }
    }

    pub(crate) fn flag(&mut self, field: u32, flag: bool) {
        self.number(field, i64::from(flag));
    }

    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.varint(u64::from(field) << 3 | 2);
            self.varint(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    /// A message inside this one, also if it is empty.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.varint(u64::from(field) << 3 | 2);
        self.varint(inner.0.len() as u64);
        self.0.extend_from_slice(&inner.0);
    }
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn unsigned(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }

    pub(crate) fn number(self) -> i64 {
        self.unsigned() as i64
    }

    pub(crate) fn flag(self) -> bool {
        self.unsigned() != 0
    }

    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }
}

/// Text that is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Calls `on` with each field of a message.
pub(crate) fn read<'a>(
    mut text: &'a [u8],
    mut on: impl FnMut(u32, Value<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !text.is_empty() {
        let tag = varint(&mut text)?;
        let field = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut text)?),
            1 => Value::Bytes(take(&mut text, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut text)?).map_err(|_| Malformed)?;
                Value::Bytes(take(&mut text, length)?)
            }
            5 => Value::Bytes(take(&mut text, 4)?),
            _ => return Err(Malformed),
        };
        on(field, value)?;
    }
    Ok(())
}

fn take<'a>(text: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = text.split_at_checked(length).ok_or(Malformed)?;
    *text = rest;
    Ok(taken)
}

fn varint(text: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(text, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.number(1, 300);
        writer.number(2, 0);
        writer.number(3, -1);
        writer.bytes(64, b"key");
        writer.message(5, |inner| inner.exact(1, 0));
        let text = writer.finish();
        let mut fields = Vec::new();
        read(&text, |field, value| {
            fields.push((field, value));
            Ok(())
        })
        .expect("a message");
        let all = [
            (1, Value::Number(300)),
            (3, Value::Number(u64::MAX)),
            (64, Value::Bytes(b"key")),
            (5, Value::Bytes(&[8, 0])),
        ];
        assert_eq!(fields, all);
        assert_eq!(fields[1].1.number(), -1);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in [&[8][..], &[0xff; 11], &[0x12, 5, 1], &[0x0b]] {
            assert_eq!(read(text, |_, _| Ok(())), Err(Malformed), "{text:?}");
        }
    }
}
