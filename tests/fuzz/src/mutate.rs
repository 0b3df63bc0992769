//! Mutated inputs, the same in each run.

use fastrand::Rng;

/// Maximum number of changes to one input.
const MAX_CHANGES: usize = 4;
/// Maximum size of an input, unless its origin is larger.
const MAX_BYTES: usize = 1 << 16;
/// Bytes at which lengths, signs and texts change their meaning.
const EDGES: &[u8] = &[0, 1, 0x7f, 0x80, 0xfe, 0xff, b'\n', b'"', b'0', b'9', b'-', b'\\'];

/// Returns input `number` of the target `name`, made from `inputs`, which must not be empty.
pub fn mutate(name: &str, number: u64, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed(name, number));
    let mut bytes = choose(&mut rng, inputs).clone();
    let limit = bytes.len().max(MAX_BYTES);
    for _ in 0..=rng.usize(..MAX_CHANGES) {
        change(&mut rng, &mut bytes, inputs);
    }
    bytes.truncate(limit);
    bytes
}

/// FNV-1a: the standard library's hashes may differ in its next version.
fn seed(name: &str, number: u64) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    name.bytes()
        .chain(number.to_le_bytes())
        .fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

fn choose<'a>(rng: &mut Rng, inputs: &'a [Vec<u8>]) -> &'a Vec<u8> {
    &inputs[rng.usize(..inputs.len())]
}

/// Flips a bit, sets a byte, truncates, removes a part, duplicates a part, or continues with another
/// input's end.
fn change(rng: &mut Rng, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    if bytes.is_empty() {
        return bytes.extend_from_slice(choose(rng, inputs));
    }
    let at = rng.usize(..bytes.len());
    let end = at + rng.usize(1..=(bytes.len() - at).min(64));
    match rng.u8(..8) {
        0 | 1 => bytes[at] ^= 1 << rng.u8(..8),
        2 => bytes[at] = rng.u8(..),
        3 => bytes[at] = EDGES[rng.usize(..EDGES.len())],
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(at..end)),
        6 => {
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        _ => {
            let source = choose(rng, inputs);
            let from = rng.usize(..=source.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&source[from..]);
        }
    }
}
