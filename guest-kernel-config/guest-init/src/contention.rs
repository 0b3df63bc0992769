//! Programs in BPF that write into telemetry lines which spinlock each CPU waits for, at mainline's tracepoints
//! `contention_begin` and `contention_end` (trace/events/lock.h, since Linux 5.19), and which one it took after a wait,
//! where there is `contended_release` (Linux 7.3 has it), without which the end of the hold would not be known.
//! Instructions: Documentation/bpf/standardization/instruction-set.rst of the kernel.
//!
//! Of queued spinlocks the tracepoints see those that wait in the queue, which with PV locks are all; not the one that
//! has set the pending bit. A program that interrupts itself on one CPU is left out by the kernel.

use alloc::{vec, vec::Vec};
use core::mem::offset_of;

use hypercalls::telemetry::{Line, QUEUED_BEHIND, QUEUED_LOCK, Wait};

/// One instruction: opcode, registers, offset and immediate value, as the kernel reads it (`struct bpf_insn`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Instruction(u64);

/// A register. R1 has the context at the start, R0 the result of a call, which overwrites R1 to R5; R10 is the stack.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R10 = 10,
}

use Register::{R0, R1, R2, R3, R4, R6, R7, R10};

/// Of a value in memory.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Width {
    Word = 0x00,
    Double = 0x18,
}

use Width::{Double, Word};

impl Instruction {
    const fn new(code: u8, to: Register, from: u8, offset: i16, value: i32) -> Self {
        let registers = to as u64 | (from as u64) << 4;
        let offset = (offset as u16 as u64) << 16;
        Self(code as u64 | registers << 8 | offset | (value as u32 as u64) << 32)
    }

    const fn copy(to: Register, from: Register) -> Self {
        Self::new(0xbf, to, from as u8, 0, 0)
    }

    const fn set(to: Register, value: i32) -> Self {
        Self::new(0xb7, to, 0, 0, value)
    }

    const fn add(to: Register, value: i32) -> Self {
        Self::new(0x07, to, 0, 0, value)
    }

    const fn or(to: Register, value: i32) -> Self {
        Self::new(0x47, to, 0, 0, value)
    }

    const fn load(width: Width, to: Register, at: Register, offset: i16) -> Self {
        Self::new(0x61 | width as u8, to, at as u8, offset, 0)
    }

    const fn store(width: Width, at: Register, offset: i16, from: Register) -> Self {
        Self::new(0x63 | width as u8, at, from as u8, offset, 0)
    }

    /// Skips so many instructions if the register is not this value.
    const fn skip_unless(register: Register, value: i32, count: i16) -> Self {
        Self::new(0x55, register, 0, count, value)
    }

    const fn skip_if_zero(register: Register, count: i16) -> Self {
        Self::new(0x15, register, 0, count, 0)
    }

    const fn skip_unless_equal(one: Register, other: Register, count: i16) -> Self {
        Self::new(0x5d, one, other as u8, count, 0)
    }

    const fn call(helper: i32) -> Self {
        Self::new(0x85, R0, 0, 0, helper)
    }

    const EXIT: Self = Self::new(0x95, R0, 0, 0, 0);
}

/// Numbers of the kernel's helpers (`bpf_map_lookup_elem`, `bpf_ktime_get_ns`, `bpf_get_smp_processor_id`).
const LOOK_UP: i32 = 1;
const MONOTONIC_TIME: i32 = 5;
const THIS_CPU: i32 = 8;

/// Value of `contention_begin`'s flags for a spinlock (`LCB_F_SPIN`; with others, it is another lock).
const SPINLOCK: i32 = 1;

/// Offset in a line; lines are small.
const WAIT: i16 = offset_of!(Line, wait) as i16;
const LOCK: i16 = offset_of!(Line, wait_lock) as i16;
const HELD: i16 = offset_of!(Line, held) as i16;
const TAKEN_LOCK: i16 = offset_of!(Line, held_lock) as i16;
const TAKEN_AT: i16 = offset_of!(Line, taken) as i16;
const RELEASED_LOCK: i16 = TAKEN_LOCK + size_of::<u64>() as i16;
const RELEASED_AT: i16 = offset_of!(Line, released_at) as i16;
/// Number of instructions of [`look_up`].
const LOOK_UP_LENGTH: usize = 9;

/// Loads the address of this CPU's line, in the array with this descriptor, to R0; skips `rest` instructions if there is
/// none. Keeps R6.
fn look_up(lines: i32, rest: i16) -> [Instruction; LOOK_UP_LENGTH] {
    /// The immediate value is the descriptor of a map (`BPF_PSEUDO_MAP_FD`).
    const OF_MAP: u8 = 1;
    [
        Instruction::call(THIS_CPU),
        Instruction::store(Word, R10, -4, R0),
        Instruction::copy(R2, R10),
        Instruction::add(R2, -4),
        // A 64-bit immediate value takes two.
        Instruction::new(0x18, R1, OF_MAP, 0, lines),
        Instruction(0),
        Instruction::call(LOOK_UP),
        Instruction::skip_if_zero(R0, rest),
        Instruction::load(Double, R3, R6, 0),
    ]
}

/// At `contention_begin(lock, flags)`: the line with this lock, if it is a spinlock.
pub fn begin(lines: i32) -> Vec<Instruction> {
    let body = [
        Instruction::or(R3, QUEUED_LOCK as i32),
        // The lock and the word belong together: in between nothing is said.
        Instruction::set(R4, Wait::Nothing as i32),
        Instruction::store(Word, R0, WAIT, R4),
        Instruction::store(Double, R0, LOCK, R3),
        Instruction::set(R4, Wait::Spinning.word(QUEUED_BEHIND) as i32),
        Instruction::store(Word, R0, WAIT, R4),
    ];
    let rest = body.len() as i16 + 1;
    let mut program = vec![
        Instruction::copy(R6, R1),
        Instruction::load(Double, R2, R6, 8),
        Instruction::skip_unless(R2, SPINLOCK, LOOK_UP_LENGTH as i16 + rest - 1),
    ];
    program.extend(look_up(lines, rest));
    program.extend(body);
    finish(program)
}

/// At `contention_end(lock, error)`: the line without a wait, if that was for this lock. Whatever was left out, the next
/// wait sets it right. A wait that an interrupt's came into is not told from there on. With `holds`, the line then says
/// that the CPU holds the lock, and since when.
pub fn end(lines: i32, holds: bool) -> Vec<Instruction> {
    let mut body =
        vec![Instruction::set(R4, Wait::Nothing as i32), Instruction::store(Word, R0, WAIT, R4)];
    if holds {
        body.extend([
            // Not held while the lock and its time do not belong together.
            Instruction::store(Word, R0, HELD, R4),
            Instruction::store(Double, R0, TAKEN_LOCK, R3),
            Instruction::copy(R7, R0),
            Instruction::call(MONOTONIC_TIME),
            Instruction::store(Double, R7, TAKEN_AT, R0),
            Instruction::set(R4, 1),
            Instruction::store(Word, R7, HELD, R4),
        ]);
    }
    let body = [if_line_has(LOCK, body.len() as i16).to_vec(), body].concat();
    with_line(lines, &body)
}

/// At `contended_release(lock)`, before the lock is released to a waiter: the line says so, and no longer that the CPU
/// holds this lock. Of locks other than spinlocks, too, whose addresses are those of no spinlock.
pub fn release(lines: i32) -> Vec<Instruction> {
    let not_held = [Instruction::set(R4, 0), Instruction::store(Word, R0, HELD, R4)];
    let released = [
        Instruction::copy(R7, R0),
        Instruction::store(Double, R7, RELEASED_LOCK, R3),
        Instruction::call(MONOTONIC_TIME),
        Instruction::store(Double, R7, RELEASED_AT, R0),
    ];
    let body = [&if_line_has(TAKEN_LOCK, not_held.len() as i16)[..], &not_held, &released].concat();
    with_line(lines, &body)
}

/// Marks the lock in R3 as a queued spinlock, and skips so many instructions unless the line has it there.
fn if_line_has(field: i16, count: i16) -> [Instruction; 3] {
    [
        Instruction::or(R3, QUEUED_LOCK as i32),
        Instruction::load(Double, R4, R0, field),
        Instruction::skip_unless_equal(R3, R4, count),
    ]
}

/// The program with this body, which is left out if the CPU has no line.
fn with_line(lines: i32, body: &[Instruction]) -> Vec<Instruction> {
    let mut program = vec![Instruction::copy(R6, R1)];
    program.extend(look_up(lines, body.len() as i16 + 1));
    program.extend(body);
    finish(program)
}

fn finish(mut program: Vec<Instruction>) -> Vec<Instruction> {
    program.extend([Instruction::set(R0, 0), Instruction::EXIT]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: i32 = 5;
    const SIZE: usize = size_of::<Line>();

    /// What the kernel's clock says.
    const NOW: u64 = 77;

    /// Runs a program on a line, for the lock and the second argument of its tracepoint: what the kernel's interpreter
    /// does with the instructions that are used here.
    fn run(program: &[Instruction], line: &mut [u8; SIZE], context: [u64; 2]) {
        const LINE: u64 = 1 << 32;
        const CONTEXT: u64 = 2 << 32;
        const STACK: u64 = 3 << 32;
        let mut stack = [0_u8; 16];
        let mut context_bytes = [0_u8; 16];
        context_bytes[..8].copy_from_slice(&context[0].to_le_bytes());
        context_bytes[8..].copy_from_slice(&context[1].to_le_bytes());
        let mut registers = [0_u64; 11];
        (registers[1], registers[10]) = (CONTEXT, STACK + 16);
        let mut at = 0;
        loop {
            let Instruction(word) = program[at];
            let (code, to, from) =
                (word as u8, (word >> 8 & 15) as usize, (word >> 12 & 15) as usize);
            let (offset, value) = ((word >> 16) as u16 as i16, (word >> 32) as u32 as i32);
            let mut skip = 0;
            let place = |base: u64| base.wrapping_add_signed(offset.into());
            match code {
                0xbf => registers[to] = registers[from],
                0xb7 => registers[to] = value as u64,
                0x07 => registers[to] = registers[to].wrapping_add_signed(value.into()),
                0x47 => registers[to] |= value as u64,
                0x18 => {
                    assert_eq!((from, value, program[at + 1]), (1, LINES, Instruction(0)));
                    skip = 1;
                }
                0x85 if value == THIS_CPU => registers[0] = 3,
                0x85 if value == MONOTONIC_TIME => {
                    registers[..6].fill(u64::MAX);
                    registers[0] = NOW;
                }
                0x85 => {
                    assert_eq!((value, registers[2]), (LOOK_UP, STACK + 12));
                    assert_eq!(stack[12..], 3_u32.to_le_bytes());
                    registers[0] = LINE;
                }
                0x55 if registers[to] != value as u64 => skip = offset,
                0x15 if registers[to] == value as u64 => skip = offset,
                0x5d if registers[to] != registers[from] => skip = offset,
                0x55 | 0x15 | 0x5d => {}
                0x61 | 0x79 => {
                    let address = place(registers[from]);
                    let memory: &[u8] = match address >> 32 {
                        1 => line,
                        2 => &context_bytes,
                        _ => &stack,
                    };
                    let (ix, count) = (address as u32 as usize, if code == 0x61 { 4 } else { 8 });
                    let mut bytes = [0; 8];
                    bytes[..count].copy_from_slice(&memory[ix..ix + count]);
                    registers[to] = u64::from_le_bytes(bytes);
                }
                0x63 | 0x7b => {
                    let address = place(registers[to]);
                    let memory: &mut [u8] = if address >> 32 == 1 { line } else { &mut stack };
                    let (ix, count) = (address as u32 as usize, if code == 0x63 { 4 } else { 8 });
                    memory[ix..ix + count].copy_from_slice(&registers[from].to_le_bytes()[..count]);
                }
                0x95 => {
                    assert_eq!(at, program.len() - 1, "it ends at its end");
                    return;
                }
                _ => panic!("{word:x}"),
            }
            at += 1 + skip as usize;
        }
    }

    /// The wait that a line tells of, with the lock.
    fn wait(line: &[u8; SIZE]) -> (Wait, u64) {
        let word = u32::from_le_bytes(line[4..8].try_into().unwrap());
        (Wait::parse(word).0, u64::from_le_bytes(line[8..16].try_into().unwrap()))
    }

    #[test]
    fn a_wait_is_told_from_its_begin_to_its_end() {
        let (begin, end) = (begin(LINES), end(LINES, false));
        let mut line = [0; SIZE];
        run(&begin, &mut line, [0x1000, SPINLOCK as u64]);
        assert_eq!(wait(&line), (Wait::Spinning, 0x1003));
        // In an interrupt, for another lock.
        run(&begin, &mut line, [0x2000, SPINLOCK as u64]);
        assert_eq!(wait(&line), (Wait::Spinning, 0x2003));
        run(&end, &mut line, [0x9000, 0]);
        assert_eq!(wait(&line), (Wait::Spinning, 0x2003), "a mutex");
        run(&end, &mut line, [0x2000, 0]);
        assert_eq!(wait(&line).0, Wait::Nothing);
        run(&end, &mut line, [0x1000, 0]);
        assert_eq!(wait(&line).0, Wait::Nothing);
        run(&begin, &mut line, [0x1000, SPINLOCK as u64]);
        assert_eq!(wait(&line), (Wait::Spinning, 0x1003), "the next wait is told again");
    }

    #[test]
    fn a_lock_is_held_from_the_end_of_a_wait_to_its_release_to_a_waiter() {
        let (begin, end, release) = (begin(LINES), end(LINES, true), release(LINES));
        let mut line = [0; SIZE];
        let number = |line: &[u8; SIZE], at: i16| {
            u64::from_le_bytes(line[at as usize..at as usize + 8].try_into().unwrap())
        };
        let held = |line: &[u8; SIZE]| line[HELD as usize];
        run(&end, &mut line, [0x1000, 0]);
        assert_eq!(held(&line), 0, "it did not wait");
        run(&begin, &mut line, [0x1000, SPINLOCK as u64]);
        assert_eq!(held(&line), 0);
        run(&end, &mut line, [0x1000, 0]);
        assert_eq!((wait(&line).0, held(&line)), (Wait::Nothing, 1));
        assert_eq!((number(&line, TAKEN_LOCK), number(&line, TAKEN_AT)), (0x1003, NOW));
        run(&release, &mut line, [0x9000, 0]);
        assert_eq!(held(&line), 1, "a mutex");
        assert_eq!((number(&line, RELEASED_LOCK), number(&line, RELEASED_AT)), (0x9003, NOW));
        run(&release, &mut line, [0x1000, 0]);
        assert_eq!(held(&line), 0);
        assert_eq!(number(&line, RELEASED_LOCK), 0x1003);
    }

    #[test]
    fn other_locks_are_left_out() {
        let mut line = [0; SIZE];
        for flags in [0, 2, 3, 5, 16] {
            run(&begin(LINES), &mut line, [0x1000, flags]);
            assert_eq!(wait(&line).0, Wait::Nothing, "{flags}");
        }
    }
}
