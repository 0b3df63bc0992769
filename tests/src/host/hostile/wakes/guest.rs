//! The guest that tries each event at each place. Its first vCPU directs the second to a place to wait at, and
//! sends it an event. The second notes its place before it waits; the answer is counted for that place.

use super::{Event, PORT_HALT_BACKEND, Place};
use crate::{
    files::code::{
        SPIN, imm32, out,
        port::{DOORBELL, EXIT, HALT, KICK, OUTPUT_PAGE, STDOUT_PAGE},
    },
    form::by_form,
    host::hostile::code::{
        AP_CODE, TRAMPOLINE, X2APIC, apic, io_apic, map_the_io_apic, msr, pauses, real_msr,
        real_out, real_x2apic, rounds, start_second, store,
    },
};

/// Words that both vCPUs know, in the first page: the round, its event and its place.
const ROUND: u16 = 0x600;
const EVENT: u16 = 0x604;
const PLACE: u16 = 0x608;
/// The place where the second vCPU waits, or [`NOWHERE`].
const WHERE: u16 = 0x60c;
/// The last round whose wait has ended, and the last in which a wait may end without an event.
const DONE: u16 = 0x610;
const RELEASE: u16 = 0x614;
/// A row for each event: number of answers at each place.
const COUNTS: u16 = 0x640;
/// A row for each event: number of waits at each place that the event should have ended and did not.
const MISSED: u16 = 0x700;

/// No place: in a row, the column after the places.
const NOWHERE: u8 = Place::ALL.len() as u8;
/// Bytes of a row.
const ROW: u16 = 32;

const IPI: u32 = 0x40;
const DEVICE: u32 = 0x41;

/// Timeouts in units of 2^32 cycles (1 to 2 s each), for a wait to end by its event, and after its release. A
/// worker of the host's kernel (irqfd) delivers a device's interrupt, and can be late: once by 5 s, in three
/// processes and for this event alone, when an emulated host of idle priority was killed.
const EVENT_TIMEOUT: u8 = 16;
const HANG_TIMEOUT: u8 = 24;
/// Exit status of a guest whose second vCPU never returned.
pub const HUNG: i32 = 99;

/// The guest's counts: the first page of its memory.
pub struct Counted<'a>(&'a [u8]);

impl<'a> Counted<'a> {
    /// Reads the counts from the end of the guest's output; None if it is too short.
    pub fn read(printed: &'a [u8]) -> Option<Self> {
        printed.len().checked_sub(4096).map(|from| Self(&printed[from..]))
    }

    /// Returns how often this event was answered at this place.
    pub fn answers(&self, event: Event, place: Place) -> u32 {
        self.word(COUNTS, event, place)
    }

    /// Returns how often this event did not end the wait at this place.
    pub fn missed(&self, event: Event, place: Place) -> u32 {
        self.word(MISSED, event, place)
    }

    fn word(&self, table: u16, event: Event, place: Place) -> u32 {
        let at = usize::from(table + ROW * event as u16) + 4 * place as usize;
        self.0[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or(0)
    }
}

/// Builds a kernel that goes through all pairs of events and places, and prints its first page.
pub fn kernel(backend: &str) -> Vec<u8> {
    let mut code = start();
    let pairs = Event::ALL.into_iter().flat_map(|event| Place::ALL.map(|place| (event, place)));
    let all_rounds: Vec<u8> = pairs
        .flat_map(|(event, place)| round(event, place, ends_alone(event, place, backend)))
        .collect();
    code.extend(rounds(by_form(5, 6), &all_rounds));
    code.extend(
        [out(OUTPUT_PAGE, 0), out(STDOUT_PAGE, 4096), out(EXIT, 0), SPIN.to_vec()].concat(),
    );
    with_second(code)
}

/// Builds a kernel whose second vCPU waits at this place forever, while the first prints a zero and spins.
pub fn waiting(place: Place) -> Vec<u8> {
    let mut code = start();
    code.extend(order(Event::Kick, place));
    let waits = waits_for(WHERE, place as u8);
    code.extend(
        [waits, pauses(20_000), out(OUTPUT_PAGE, 0), out(STDOUT_PAGE, 1), SPIN.to_vec()].concat(),
    );
    with_second(code)
}

/// Whether the event ends the wait by itself. Otherwise it stays pending until the wait ends.
pub fn ends_alone(event: Event, place: Place, backend: &str) -> bool {
    match (event, place) {
        // A thread that blocks in the VMM is not in KVM, where these are pending. The NMI poller checks for
        // them; only VMs whose guests halt by this port have a poller.
        (Event::Nmi | Event::Init, Place::Vmm) => backend == PORT_HALT_BACKEND,
        (Event::Nmi | Event::Init, _) => true,
        // A kick ends any halt. A vCPU that does not halt has it pending for its next halt.
        (Event::Kick, place) => place != Place::Spins,
        // A doorbell ends only a halt in KVM's HLT.
        (Event::Doorbell, place) => matches!(place, Place::HltMasked | Place::Hlt),
        // Interrupts end no halt in the VMM, and no HLT that masks them.
        (Event::Ipi | Event::Device, place) => matches!(place, Place::Hlt | Place::Spins),
    }
}

fn with_second(mut code: Vec<u8>) -> Vec<u8> {
    assert!(code.len() <= AP_CODE, "{} bytes", code.len());
    code.resize(AP_CODE, 0);
    code.extend(second());
    code
}

/// Starts the second vCPU and waits until it is up.
fn start() -> Vec<u8> {
    let mut code = [store(WHERE.into(), NOWHERE.into()), store(ROUND.into(), 1)].concat();
    code.extend(start_second());
    code.extend(
        [X2APIC.to_vec(), msr(apic::SPURIOUS, apic::ON), routes_com1(), waits_for(DONE, 1)]
            .concat(),
    );
    code
}

/// `1: pause; cmp dword [word], value; jne 1b`
fn waits_for(word: u16, value: u8) -> Vec<u8> {
    let poll = imm32(&[0xf3, 0x90, 0x83, 0x3c, 0x25], word.into());
    [poll, vec![value, 0x75, 0xf4]].concat()
}

/// Begins a round: its event, its place, and then `inc dword [ROUND]`.
fn order(event: Event, place: Place) -> Vec<u8> {
    let start = imm32(&[0xff, 0x04, 0x25], ROUND.into());
    [store(EVENT.into(), event as u32), store(PLACE.into(), place as u32), start].concat()
}

/// `mov eax, [DONE]; cmp eax, [ROUND]`
fn is_done() -> Vec<u8> {
    [imm32(&[0x8b, 0x04, 0x25], DONE.into()), imm32(&[0x3b, 0x04, 0x25], ROUND.into())].concat()
}

/// Waits for the end of the second vCPU's wait; executes `otherwise` if that does not come in time.
fn waits_for_end(timeout: u8, otherwise: &[u8]) -> Vec<u8> {
    // rdtsc; mov edi, edx; 1: pause; is it done? je 2f; rdtsc; sub edx, edi; cmp edx, timeout; jb 1b; ...; 2:
    let mut body = [vec![0xf3, 0x90], is_done()].concat();
    let skip = 7 + 2 + otherwise.len();
    body.extend(imm32(&[0x0f, 0x84], skip as u32));
    body.extend([0x0f, 0x31, 0x29, 0xfa, 0x83, 0xfa, timeout]);
    let back = -(body.len() as i32 + 2);
    body.extend([0x72, back as i8 as u8]);
    [vec![0x0f, 0x31, 0x89, 0xd7], body, otherwise.to_vec()].concat()
}

/// One event at one place.
fn round(event: Event, place: Place, ends_alone: bool) -> Vec<u8> {
    // Restarts a wait that ended before its event (by a pending earlier wakeup): pause; is it done? je to the
    // order; cmp dword [WHERE], place; jne to the pause
    let mut code = order(event, place);
    let poll = [vec![0xf3, 0x90], is_done()].concat();
    let back = -((code.len() + poll.len()) as i32 + 6);
    code.extend(&poll);
    code.extend(imm32(&[0x0f, 0x84], back as u32));
    code.extend(imm32(&[0x83, 0x3c, 0x25], WHERE.into()));
    code.extend([place as u8, 0x75]);
    code.push(-(poll.len() as i32 + 6 + 8 + 2) as i8 as u8);
    // The second vCPU notes its place before it waits.
    code.extend(pauses(2_000));
    code.extend(send(event));
    if ends_alone {
        // inc dword [MISSED ...]
        let missed = MISSED + ROW * event as u16 + 4 * place as u16;
        let missed = [imm32(&[0xff, 0x04, 0x25], missed.into()), release(place)].concat();
        code.extend(waits_for_end(EVENT_TIMEOUT, &missed));
    } else {
        // A worker (irqfd) delivers a device's interrupt; after the release it would count for no place.
        let delivery = if event == Event::Device { 40_000 } else { 2_000 };
        code.extend([pauses(delivery), release(place)].concat());
    }
    code.extend(waits_for_end(HANG_TIMEOUT, &[out(EXIT, HUNG as u32), SPIN.to_vec()].concat()));
    code
}

/// Sends the event to the second vCPU.
fn send(event: Event) -> Vec<u8> {
    let to_second = |command: u32| msr(apic::COMMAND, 1 << 32 | u64::from(command));
    match event {
        Event::Nmi => to_second(0x4400),
        Event::Init => {
            [to_second(0x4500), pauses(500), to_second(0x4600 | TRAMPOLINE >> 12)].concat()
        }
        Event::Ipi => to_second(0x4000 | IPI),
        Event::Kick => out(KICK, 1),
        Event::Doorbell => out(DOORBELL, 1),
        // COM1 interrupts after a byte is sent, if its last interrupt was acknowledged: mov dx, 0x3fa; in al,
        // dx; mov dx, 0x3f8; mov al, '.'; out dx, al
        Event::Device => {
            vec![0x66, 0xba, 0xfa, 0x03, 0xec, 0x66, 0xba, 0xf8, 0x03, 0xb0, b'.', 0xee]
        }
    }
}

/// Ends a wait without an event of the matrix: mov eax, [ROUND]; mov [RELEASE], eax; and a kick for that kind of halt.
fn release(place: Place) -> Vec<u8> {
    let (from, to) =
        (imm32(&[0x8b, 0x04, 0x25], ROUND.into()), imm32(&[0x89, 0x04, 0x25], RELEASE.into()));
    let mut code = [from, to].concat();
    match place {
        Place::Vmm => code.extend(out(KICK, 1)),
        Place::HltMasked | Place::Hlt => code.extend(out(DOORBELL, 1)),
        Place::Spins => {}
    }
    code
}

/// Makes COM1 interrupt the second vCPU through the I/O APIC.
fn routes_com1() -> Vec<u8> {
    // The two halves of the entry of pin 4 (82093AA, 3.2.4).
    let entry = [io_apic(0x19, 1 << 24), io_apic(0x18, DEVICE)].concat();
    // COM1 interrupts when it has sent: mov dx, 0x3f9; mov al, 2; out dx, al
    let sends = vec![0x66, 0xba, 0xf9, 0x03, 0xb0, 2, 0xee];
    [map_the_io_apic(), entry, sends].concat()
}

/// Offsets of the parts of the second vCPU's code.
#[derive(Clone, Copy, Default)]
struct Parts {
    end_of_wait: usize,
    nmi: usize,
    ipi: usize,
    device: usize,
}

/// The second vCPU's code, in real mode.
fn second() -> Vec<u8> {
    let length = |parts: Parts| setup(parts).len() + wait_at_place().len();
    let mut parts = Parts { end_of_wait: length(Parts::default()), ..Parts::default() };
    let tail = end_of_wait(parts.end_of_wait);
    let handlers = |parts: Parts| {
        [handler(Event::Nmi, parts), handler(Event::Ipi, parts), handler(Event::Device, parts)]
    };
    let [nmi, ipi, _] = handlers(parts);
    parts.nmi = parts.end_of_wait + tail.len();
    parts.ipi = parts.nmi + nmi.len();
    parts.device = parts.ipi + ipi.len();
    [setup(parts), wait_at_place(), tail, handlers(parts).concat()].concat()
}

/// Counts an INIT for the place where the vCPU waited, sets the vCPU up, and ends the wait.
fn setup(parts: Parts) -> Vec<u8> {
    // An entry of the real-mode interrupt table: offset and segment.
    let entry = |offset: usize| (TRAMPOLINE << 12 | offset as u32).to_le_bytes();
    // cli; mov ax, 0x7000; mov ss, ax; mov sp, 0xfff0
    let mut code = vec![0xfa, 0xb8, 0, 0x70, 0x8e, 0xd0, 0xbc, 0xf0, 0xff];
    // xor ax, ax; mov ds, ax; mov es, ax
    code.extend([0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0]);
    code.extend(counts(Event::Init));
    for (vector, handler) in
        [(2, parts.nmi), (IPI as u16, parts.ipi), (DEVICE as u16, parts.device)]
    {
        code.extend([0x66, 0xc7, 0x06]); // mov dword [...]
        code.extend((vector * 4).to_le_bytes());
        code.extend(entry(handler));
    }
    code.extend(real_x2apic());
    code.extend(real_msr(apic::SPURIOUS, apic::ON));
    code.extend(ends_wait());
    code
}

/// Encodes a real-mode instruction on a word of the first page, with an immediate byte if any.
fn op(opcode: &[u8], word: u16, byte: Option<u8>) -> Vec<u8> {
    [opcode, &word.to_le_bytes(), byte.as_slice()].concat()
}

/// Ends the wait: mov byte [WHERE], NOWHERE; mov eax, [ROUND]; mov [DONE], eax
fn ends_wait() -> Vec<u8> {
    [
        op(&[0xc6, 0x06], WHERE, Some(NOWHERE)),
        op(&[0x66, 0xa1], ROUND, None),
        op(&[0x66, 0xa3], DONE, None),
    ]
    .concat()
}

/// mov bx, [WHERE]; shl bx, 2; inc dword [bx + row]
fn counts(event: Event) -> Vec<u8> {
    let mut code = op(&[0x8b, 0x1e], WHERE, None);
    code.extend([0xc1, 0xe3, 2]);
    code.extend(op(&[0x66, 0xff, 0x87], COUNTS + ROW * event as u16, None));
    code
}

/// Waits for the next round, and goes to its place; falls through to [`end_of_wait`] or jumps there.
fn wait_at_place() -> Vec<u8> {
    let ways = Place::ALL.map(|place| match place {
        // sti, which lets interrupts pass after the next instruction: nop; out; jmp
        Place::Vmm => [vec![0xfb, 0x90], real_out(HALT, 1)].concat(),
        Place::HltMasked => vec![0xf4],
        Place::Hlt => vec![0xfb, 0xf4],
        // sti; 1: pause; mov eax, [RELEASE]; cmp eax, [ROUND]; jne 1b
        Place::Spins => {
            let poll = [op(&[0x66, 0xa1], RELEASE, None), op(&[0x66, 0x3b, 0x06], ROUND, None)];
            [&[0xfb, 0xf3, 0x90][..], &poll.concat(), &[0x75, 0xf3]].concat()
        }
    });
    // 1: pause; mov eax, [ROUND]; cmp eax, [DONE]; je 1b
    let mut code = vec![0xf3, 0x90];
    code.extend([op(&[0x66, 0xa1], ROUND, None), op(&[0x66, 0x3b, 0x06], DONE, None)].concat());
    code.extend([0x74, 0xf3]);
    // mov bx, [PLACE]; mov [WHERE], bx
    code.extend([op(&[0x8b, 0x1e], PLACE, None), op(&[0x89, 0x1e], WHERE, None)].concat());
    // For each place but the last: cmp bx, place; jne over; its way; jmp to the end
    let last = ways.len() - 1;
    let mut end = ways[last].clone();
    for (place, way) in ways.iter().enumerate().take(last).rev() {
        let jump = [0xe9].into_iter().chain((end.len() as i16).to_le_bytes());
        let way: Vec<u8> = way.iter().copied().chain(jump).collect();
        end = [&[0x83, 0xfb, place as u8, 0x75, way.len() as u8][..], &way, &end].concat();
    }
    code.extend(end);
    code
}

/// The end of all waits, including those that a handler cuts off. `at` is its offset.
fn end_of_wait(at: usize) -> Vec<u8> {
    // Masked events arrive now: sti; out 0x80, al; nop; cli. (A software KVM checks for them after an exit.)
    let mut code = vec![0xfb, 0xe6, 0x80, 0x90, 0xfa];
    // A kick stays pending for this port, unless it ended a halt there. A doorbell stays pending for HLT.
    let halts = real_out(HALT, 1);
    let unless = |place: Place, body: &[u8]| {
        [op(&[0x80, 0x3e], PLACE, Some(place as u8)), vec![0x74, body.len() as u8], body.to_vec()]
            .concat()
    };
    let of_kick = [unless(Place::Vmm, &halts), counts(Event::Kick)].concat();
    let of_doorbell =
        [unless(Place::HltMasked, &unless(Place::Hlt, &[0xf4])), counts(Event::Doorbell)].concat();
    for (event, body) in [(Event::Kick, of_kick), (Event::Doorbell, of_doorbell)] {
        code.extend(op(&[0x80, 0x3e], EVENT, Some(event as u8)));
        code.extend([0x75, body.len() as u8]);
        code.extend(body);
    }
    code.extend(ends_wait());
    // jmp to the wait for the next round
    let begin = at - wait_at_place().len();
    code.push(0xe9);
    code.extend((begin as i16 - (at + code.len() + 2) as i16).to_le_bytes());
    code
}

/// Counts an interrupt for the vCPU's place, and ends that wait: else an HLT not yet begun would never end.
fn handler(event: Event, parts: Parts) -> Vec<u8> {
    // push eax; push ecx; push edx; push bx
    let mut code = vec![0x66, 0x50, 0x66, 0x51, 0x66, 0x52, 0x53];
    if event != Event::Nmi {
        code.extend(real_msr(apic::EOI, 0));
    }
    code.extend(counts(event));
    // If it waits: mov bp, sp; mov word [bp + 14], end_of_wait
    let mut continues = vec![0x89, 0xe5, 0xc7, 0x46, 14];
    continues.extend((parts.end_of_wait as u16).to_le_bytes());
    code.extend(op(&[0x80, 0x3e], WHERE, Some(NOWHERE)));
    code.extend([0x74, continues.len() as u8]);
    code.extend(continues);
    code.extend([0x5b, 0x66, 0x5a, 0x66, 0x59, 0x66, 0x58, 0xcf]);
    code
}
