//! A 16550 serial port of vm-superio behind a lock.

use std::{
    collections::VecDeque,
    fmt, io, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use vm_superio::{Serial, Trigger, serial::SerialEvents};
use vmm_sys_util::eventfd::EventFd;

use super::{
    console_monitor::ConsoleMonitor,
    output::{Locked, Output, Sink, WaitRunner},
};

/// Maximum number of input bytes held here when the port's own FIFO (64 bytes) is full. Beyond that, no
/// more input is read from the terminal.
const BACKLOG: usize = 4096;

/// Raises the port's interrupt line.
pub struct IrqTrigger(EventFd);

impl Trigger for IrqTrigger {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        self.0.write(1)
    }
}

/// Notifies the event loop that the guest has emptied the FIFO.
pub struct DrainedSignal(EventFd);

impl SerialEvents for DrainedSignal {
    fn buffer_read(&self) {}
    fn out_byte(&self) {}
    fn tx_lost_byte(&self) {}
    fn in_buffer_empty(&self) {
        // A full eventfd counter is already readable.
        let _ = self.0.write(1);
    }
}

/// The port collects its output in memory, which is then written under a separate lock, so that input
/// does not block behind a slow reader.
type Uart = Serial<IrqTrigger, DrainedSignal, Vec<u8>>;

struct BufferedUart {
    uart: Uart,
    backlog: VecDeque<u8>,
}

/// One serial port.
pub struct SerialPort {
    inner: Mutex<BufferedUart>,
    /// Locked before the port itself, to keep output in order.
    out: Output,
    /// Receives a copy of the output if this is the console of a guest's kernel.
    monitor: Option<Arc<ConsoleMonitor>>,
}

impl fmt::Debug for SerialPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SerialPort")
    }
}

impl SerialPort {
    /// Creates a port that interrupts through `irq`, reports an emptied input FIFO to `drained`, and
    /// sends the guest's output to `out`.
    pub fn new(irq: EventFd, drained: EventFd, out: Box<dyn Sink>) -> Self {
        let uart = Serial::with_events(IrqTrigger(irq), DrainedSignal(drained), Vec::new());
        let inner = Mutex::new(BufferedUart { uart, backlog: VecDeque::new() });
        Self { inner, out: Output::new(out), monitor: None }
    }

    /// Makes this port the console of a guest's kernel.
    pub fn with_monitor(self, monitor: Arc<ConsoleMonitor>) -> Self {
        Self { monitor: Some(monitor), ..self }
    }

    fn lock(&self) -> MutexGuard<'_, BufferedUart> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles register writes by the guest; each byte of `data` is one access. The resulting output is
    /// written before this returns, as by [`Output::write`].
    pub fn write(&self, offset: u8, data: &[u8], run_wait: WaitRunner<'_>) -> io::Result<()> {
        self.out.locked(run_wait, |out, run_wait| self.write_to(out, offset, data, run_wait))
    }

    fn write_to(
        &self,
        out: Locked<'_>,
        offset: u8,
        data: &[u8],
        run_wait: WaitRunner<'_>,
    ) -> io::Result<()> {
        let mut inner = self.lock();
        for byte in data {
            // If the interrupt cannot be raised, the guest will notice when it next polls the port.
            let _ = inner.uart.write(offset, *byte);
        }
        if inner.uart.writer().is_empty() {
            return Ok(());
        }
        // The buffer is returned so that the next write does not allocate.
        let mut sent = mem::take(inner.uart.writer_mut());
        drop(inner);
        if let Some(monitor) = &self.monitor {
            monitor.observe(&sent);
        }
        let written = out.write(&sent, run_wait);
        sent.clear();
        *self.lock().uart.writer_mut() = sent;
        written
    }

    /// Handles register reads by the guest.
    pub fn read(&self, offset: u8, data: &mut [u8]) {
        let mut inner = self.lock();
        for byte in data {
            *byte = inner.uart.read(offset);
        }
    }

    /// Returns the number of input bytes that the port still accepts.
    pub fn room(&self) -> usize {
        BACKLOG - self.lock().backlog.len().min(BACKLOG)
    }

    /// Sends input to the guest. Bytes beyond the FIFO's capacity wait for [`SerialPort::refill`], and
    /// bytes beyond the [`room`](Self::room) are dropped.
    pub fn send(&self, bytes: &[u8]) {
        let mut inner = self.lock();
        let room = BACKLOG.saturating_sub(inner.backlog.len());
        inner.backlog.extend(&bytes[..bytes.len().min(room)]);
        inner.refill();
    }

    /// Moves waiting input to the FIFO.
    pub fn refill(&self) {
        self.lock().refill();
    }
}

impl BufferedUart {
    fn refill(&mut self) {
        let room = self.uart.fifo_capacity().min(self.backlog.len());
        if room == 0 {
            return;
        }
        let (front, _) = self.backlog.as_slices();
        let chunk = &front[..room.min(front.len())];
        // In loopback mode the port accepts none, and the bytes wait. On error, only the interrupt failed.
        let enqueued = self.uart.enqueue_raw_bytes(chunk).unwrap_or(chunk.len());
        self.backlog.drain(..enqueued);
    }
}

#[cfg(test)]
mod tests {
    use vmm_sys_util::eventfd::EFD_NONBLOCK;

    use super::*;

    fn port() -> SerialPort {
        let event = || EventFd::new(EFD_NONBLOCK).unwrap();
        SerialPort::new(event(), event(), Box::new(io::sink()))
    }

    /// A guest that repeatedly requests stdin is sent a byte each time, even if it reads none.
    #[test]
    fn unread_input_is_bounded() {
        let port = port();
        for _ in 0..3 * BACKLOG {
            port.send(&[0]);
        }
        assert_eq!((port.room(), port.lock().backlog.len()), (0, BACKLOG));
        port.send(&[1; 100]);
        assert_eq!(port.lock().backlog.len(), BACKLOG);
    }

    #[test]
    fn input_arrives_in_order() {
        const DATA: u8 = 0;
        let port = port();
        let text: Vec<u8> = (0..200).collect();
        port.send(&text);
        let mut read = [0; 200];
        for byte in &mut read {
            port.read(DATA, std::slice::from_mut(byte));
            port.refill();
        }
        assert_eq!(read, text[..]);
    }
}
