//! Parses an input. Beyond its end it reads as zeros, so every input is valid.

/// The unread rest of an input.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let count = N.min(self.0.len());
        let (head, tail) = self.0.split_at(count);
        array[..count].copy_from_slice(head);
        self.0 = tail;
        array
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    /// Returns a number below `end`, which is at most 256, from the next byte.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Returns one of these, chosen by the next byte.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns the next two bytes.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Returns the next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Returns the next eight bytes.
    pub fn double(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Returns up to `limit` of the next bytes.
    pub fn bytes(&mut self, limit: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(limit.min(self.0.len()));
        self.0 = tail;
        head
    }

    /// Returns all remaining bytes.
    pub fn remaining(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks an error message for users: it is one line.
pub fn is_one_line(message: &str) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
}
