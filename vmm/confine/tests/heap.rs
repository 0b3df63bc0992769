//! Memory of confined threads.

use std::{hint::black_box, thread};

use confine::{Class, Files, enter, run};

/// Regression: the reader of slices was killed, as glibc opens a file when it first shrinks the heap of a thread.
#[test]
fn confined_threads_return_memory() {
    const CHUNK: usize = 1 << 16;
    let allocate_and_free = || {
        enter(Class::Slices);
        let chunks: Vec<Vec<u8>> = (0..1_000).map(|_| vec![1; CHUNK]).collect();
        black_box(chunks).len()
    };
    let freed = run(&Files::default(), || thread::spawn(allocate_and_free).join());
    assert_eq!(freed.expect("it is confined").expect("no panic"), 1_000);
}
