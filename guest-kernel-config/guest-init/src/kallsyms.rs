//! The locations of the kernel's locks, from `/proc/kallsyms`.

use hypercalls::kernel_facts::{KernelFacts, VERSION};

/// Longest buffered line: an address, a type, a name of at most 512 characters (`KSYM_NAME_LEN`), a module.
const MAX_LINE: usize = 640;

/// Parses the file, in chunks of any length.
pub struct Reader {
    facts: KernelFacts,
    /// The beginning of a line whose end has not been read.
    line: [u8; MAX_LINE],
    length: usize,
}

impl Default for Reader {
    fn default() -> Self {
        let facts = KernelFacts { version: VERSION, ..KernelFacts::default() };
        Self { facts, line: [0; MAX_LINE], length: 0 }
    }
}

impl Reader {
    /// Parses the next chunk of the file.
    pub fn push(&mut self, mut chunk: &[u8]) {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            let (ending, next) = (&chunk[..end], &chunk[end + 1..]);
            if self.length == 0 {
                self.record(ending);
            } else {
                self.buffer(ending);
                let (line, length) = (self.line, self.length);
                self.record(&line[..length]);
                self.length = 0;
            }
            chunk = next;
        }
        self.buffer(chunk);
    }

    fn record(&mut self, line: &[u8]) {
        if let Some((address, name)) = symbol(line) {
            self.facts.record(address, name);
        }
    }

    fn buffer(&mut self, begin: &[u8]) {
        // Truncates a line that is too long, in its name or module.
        let room = &mut self.line[self.length..];
        let count = begin.len().min(room.len());
        room[..count].copy_from_slice(&begin[..count]);
        self.length += count;
    }

    /// Whether all facts that the file may contain have been found, so that its long rest need not be read.
    pub fn is_complete(&self) -> bool {
        let KernelFacts {
            flags, native_slow_path, pv_slow_path, queue_nodes, preempt_count, ..
        } = self.facts;
        let are_paths_known = native_slow_path.end != 0 && pv_slow_path.end != 0;
        flags != 0 && are_paths_known && queue_nodes != 0 && preempt_count != 0
    }

    /// The facts found; `None` without any address, as when the kernel hides addresses from this process.
    pub fn facts(&self) -> Option<KernelFacts> {
        let KernelFacts { native_slow_path, queue_nodes, preempt_count, .. } = self.facts;
        let is_known = native_slow_path.start != 0 || queue_nodes != 0 || preempt_count != 0;
        is_known.then_some(self.facts)
    }
}

/// Parses a line (address, type and name); returns the address and the name.
fn symbol(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace());
    Some((hexadecimal(words.next()?)?, words.nth(1)?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use hypercalls::kernel_facts::{COUNTS_LOCKS, CodeRange};

    use super::*;

    const TEXT: &[u8] = b"0000000000020940 A pcpu_hot\n\
        0000000000021000 A qnodes\n\
        ffffffff9e100000 T native_queued_spin_lock_slowpath\n\
        ffffffff9e100000 T an_alias\n\
        ffffffff9e1002e0 T __pv_queued_spin_lock_slowpath\n\
        ffffffff9e100640 t x__pv_queued_spin_lock_slowpath\n\
        ffffffff9e200000 T preempt_schedule\n\
        ffffffffc0000000 t qnodes\t[m]\n";

    fn read(chunks: impl Iterator<Item = &'static [u8]>) -> Option<KernelFacts> {
        let mut reader = Reader::default();
        chunks.for_each(|chunk| reader.push(chunk));
        reader.facts()
    }

    #[test]
    fn facts_are_parsed_from_chunks_of_any_length() {
        let facts = read([TEXT].into_iter()).unwrap();
        let expected = KernelFacts {
            version: VERSION,
            flags: COUNTS_LOCKS,
            native_slow_path: CodeRange {
                start: 0xffff_ffff_9e10_0000,
                end: 0xffff_ffff_9e10_02e0,
            },
            pv_slow_path: CodeRange { start: 0xffff_ffff_9e10_02e0, end: 0xffff_ffff_9e10_0640 },
            queue_nodes: 0x21000,
            preempt_count: 0x20948,
        };
        assert_eq!(facts, expected);
        let mut reader = Reader::default();
        let (first, tail) = TEXT.split_at(TEXT.len() - 60);
        reader.push(first);
        assert!(!reader.is_complete());
        reader.push(tail);
        assert!(reader.is_complete());
        for length in 1..70 {
            assert_eq!(read(TEXT.chunks(length)), Some(expected), "{length} bytes each");
        }
    }

    #[test]
    fn hidden_addresses_are_not_known() {
        let text = b"0000000000000000 A pcpu_hot\n0000000000000000 A qnodes\n";
        assert_eq!(read([text.as_slice()].into_iter()), None);
        assert_eq!(
            read([[b'f'; 2000].as_slice(), b"\n\nx\nffff\n", &[0xff; 99]].into_iter()),
            None
        );
    }
}
